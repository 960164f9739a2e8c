"""The simulator agrees with queueing theory where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import factorial, sqrt

import numpy as np
import pytest

from mavstream_server.optimizer.admission.occupancy import ClassLoad, Occupancy
from mavstream_server.optimizer.admission.queueing import Stream, cobham, pollaczek_khinchine
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.run.execute import run
from mavstream_server.simulation.scenario import (
    CostKind,
    OperatorSpec,
    QuerySpec,
    Scenario,
    Service,
    SourceSpec,
    StatisticsKind,
    StreamSpec,
)

MICROSECOND = 1000
MICROSECONDS = 1e-6
STUDENT = 5.41
"""99.9 % of Student's distribution for eight runs: a wrong formula is found, chance is not."""


def served(
    services: dict[str, tuple[float, float]],
    seconds: float,
    *,
    varies: CostKind = CostKind.CONSTANT,
    cores: int = 1,
) -> Scenario:
    """A query for each (tuples per second, microseconds per tuple), consisting of an output only."""
    outputs = {
        name: OperatorSpec("out", "output", (name,), cost * MICROSECOND, varies=varies)
        for name, (_, cost) in services.items()
    }
    return Scenario(
        "theory",
        priorities={name: len(services) - index for index, name in enumerate(services)},
        streams=tuple(StreamSpec(name, rate) for name, (rate, _) in services.items()),
        queries=tuple(QuerySpec(name, name, (output,)) for name, output in outputs.items()),
        cores=cores,
        sources=SourceSpec(Service.DIRECT),
        seconds=seconds,
        statistics=StatisticsKind.DECLARED,
    )


def constant(services: dict[str, tuple[float, float]]) -> list[Stream]:
    """The same workload as arguments of the formulas, in seconds."""
    costs = [(rate, cost * MICROSECONDS) for rate, cost in services.values()]
    return [Stream(rate, cost, cost * cost) for rate, cost in costs]


def assert_means(expected: dict[str, float], measure: Callable[[int], Result], runs: int = 8) -> None:
    """Assert that mean response times (us) over runs agree with theory within their standard error."""
    results = [measure(seed) for seed in range(runs)]
    for name, value in expected.items():
        found = np.array([1000 * (result.classes[name].mean_ms or 0) for result in results])
        error = found.std(ddof=1) / sqrt(runs)
        assert abs(found.mean() - value) < STUDENT * error, (name, found.mean(), value, error)
        assert error < 0.05 * value, "too few tuples to tell"


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_one_exponential_server_is_m_m_1(load: float) -> None:
    scenario = served({"q": (load * 10_000, 100)}, 2.5, varies=CostKind.EXPONENTIAL)
    assert_means({"q": 100 / (1 - load)}, lambda seed: run(scenario, "rr", seed=seed))


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_one_constant_server_is_m_d_1(load: float) -> None:
    scenario = served({"q": (load * 10_000, 100)}, 2.0)
    expected = {"q": 100 + load * 100 / (2 * (1 - load))}
    assert_means(expected, lambda seed: run(scenario, "rr", seed=seed))


def test_mixed_services_in_order_of_arrival_match_pollaczek_khinchine() -> None:
    services = {"short": (6000.0, 50.0), "long": (1000.0, 400.0)}  # utilisations of 0.3 and 0.4
    scenario = served(services, 2.0)
    waiting = pollaczek_khinchine(constant(services)) / MICROSECONDS
    expected = {"short": waiting + 50, "long": waiting + 400}
    assert_means(expected, lambda seed: run(scenario, "fifo", {"tuples": 1}, seed=seed))


def test_rates_as_priorities_match_cobham() -> None:
    services = {"short": (8000.0, 50.0), "long": (1000.0, 400.0)}  # utilisations of 0.4 and 0.4
    scenario = served(services, 2.0)
    first, second = (wait / MICROSECONDS for wait in cobham(constant(services)))
    expected = {"short": first + 50, "long": second + 400}
    assert_means(expected, lambda seed: run(scenario, "rb", {"tuples": 1}, seed=seed))


@pytest.mark.parametrize("cores", [2, 4])
def test_several_cores_are_m_m_c(cores: int) -> None:
    """Many light queries, so that two tuples rarely wait for the same one."""
    load, queries = 0.7, 400
    rate = load * cores * 10_000
    plan = served(
        {f"q{number}": (rate / queries, 100.0) for number in range(queries)},
        20_000 / rate,
        varies=CostKind.EXPONENTIAL,
        cores=cores,
    )
    one_class = replace(
        plan, priorities={"q": 1}, queries=tuple(replace(query, class_name="q") for query in plan.queries)
    )
    offered = load * cores
    queueing = offered**cores / factorial(cores) / (1 - load)
    busy = queueing / (sum(offered**k / factorial(k) for k in range(cores)) + queueing)
    expected = {"q": 100 + busy * 100 / (cores * (1 - load))}
    assert_means(expected, lambda seed: run(one_class, "mrr", seed=seed))


@pytest.mark.parametrize("priorities", [(2, 1), (9, 1)])
@pytest.mark.parametrize(
    "services",
    [
        {"high": (3000.0, 100.0), "low": (4000.0, 100.0)},
        {"high": (1000.0, 100.0), "low": (8000.0, 100.0)},
        {"high": (2000.0, 100.0), "low": (1000.0, 600.0)},
    ],
)
def test_estimates_of_admission_for_two_classes_are_within_a_factor_of_two(
    services: dict[str, tuple[float, float]], priorities: tuple[int, int]
) -> None:
    weights = dict(zip(services, priorities, strict=True))
    scenario = replace(served(services, 1.0, varies=CostKind.EXPONENTIAL), priorities=weights)
    simulated = run(scenario, "cqc", {"train": 1}, seed=3)
    # Enough queries that longer turns gain nothing: tuples are taken one by one here.
    loads = {name: ClassLoad(weights[name], 10**6, r * c / 1e6, r) for name, (r, c) in services.items()}
    for name in services:
        found, expected = simulated.classes[name].mean_ms, 1000 * Occupancy(loads, True).response(name).mean
        assert found is not None
        assert found / 2 < expected < found * 2, (name, found, expected)
