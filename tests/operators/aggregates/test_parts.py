"""The state of many groups, divided into parts of consecutive groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mavstream_server.columns.column import Column
from mavstream_server.operators.aggregates.accumulator import Accumulator, Slots
from mavstream_server.operators.aggregates.counts import Count, CountDistinct
from mavstream_server.operators.aggregates.exact_sums import ExactSum
from mavstream_server.operators.aggregates.picks import Edge, IntMaximum
from mavstream_server.operators.aggregates.quantiles import Quantiles
from mavstream_server.operators.aggregates.sums import Deviation, FloatAverage, IntSum


@pytest.mark.parametrize(
    "make",
    [
        Count,
        CountDistinct,
        Deviation,
        ExactSum,
        FloatAverage,
        IntMaximum,
        IntSum,
        Quantiles,
        lambda: Edge(last=True),
    ],
)
@pytest.mark.parametrize("slots", [1, 7, 8, 30])
def test_parts_have_the_results_of_their_groups(make: Callable[[], Accumulator], slots: int) -> None:
    random = np.random.default_rng(slots)
    whole = make()
    whole.grow(slots)
    for first in range(0, 400, 100):
        rows, values = random.integers(0, slots, 100), random.integers(0, 20, 100)
        whole.update(Slots(rows, slots), Column(values), np.arange(first, first + 100))
    parts = list(whole.parts(8))
    assert [part.size for part in parts] == [min(8, slots - start) for start in range(0, slots, 8)]
    found = [value for part in parts for value in part.result().values.tolist()]
    assert found == whole.result().values.tolist()
