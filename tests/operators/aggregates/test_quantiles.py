"""Quantiles at the limits of floats, and the state that they share."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from tests.conftest import MakeStream

from mavstream_server.columns.column import Column
from mavstream_server.operators.aggregates.accumulator import Slots
from mavstream_server.operators.aggregates.quantiles import Quantiles
from mavstream_server.testing import run_plan

LARGEST = 1.7976931348623157e308


def quantiles_of(values: list[float], fraction: float) -> float:
    held = Quantiles()
    held.grow(1)
    held.update(Slots(np.zeros(len(values), dtype=np.int64), 1), Column(np.array(values)), None)
    return float(held.at(fraction).values[0])


@pytest.mark.parametrize("fraction", [0.0, 0.1, 1 / 3, 0.5, 0.95, 1.0])
@pytest.mark.parametrize(
    "values", [[0.1] * 7, [-0.0, 0.0], [-LARGEST, LARGEST], [5e-324, -5e-324, 1.0], [3.0]]
)
def test_a_quantile_is_finite_and_between_its_neighbours(values: list[float], fraction: float) -> None:
    place = (len(values) - 1) * fraction
    ordered = sorted(values)
    found = quantiles_of(values, fraction)
    assert ordered[math.floor(place)] <= found <= ordered[math.ceil(place)]
    assert math.copysign(1, found) == 1 or found < 0  # zero has no sign


def test_quantiles_grow_with_their_fraction() -> None:
    random = Random(1)
    values = [random.gauss(0, 1e3) for _ in range(100)]
    fractions = [number / 200 for number in range(201)]
    found = [quantiles_of(values, fraction) for fraction in fractions]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (min(values), max(values))


def test_quantiles_of_one_argument_are_stored_once(stream: MakeStream) -> None:
    def stored(name: str, compute: dict[str, str]) -> int:
        numbers = stream(name, "at timestamp, x float", event_time="at")
        numbers.rows(*[(number, float(number)) for number in range(5000)], frame=1000)
        window = {"kind": "tumbling", "size": "1s"}
        nodes = {
            "in": {"op": "source", "stream": name},
            "out": {"op": "aggregate", "input": "in", "window": window, "compute": compute},
        }
        run = run_plan(nodes, "out", [numbers])
        run.engine.run()
        assert run.query.memory.state > 5000 * 16
        return run.query.memory.state

    one = stored("one", {"p50": "median(x)"})
    assert stored("all", {"p50": "median(x)", "p95": "quantile(x, 0.95)", "p99": "quantile(x, 0.99)"}) == one
