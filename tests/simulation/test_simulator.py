"""The simulator conserves tuples, whatever the policy, the number of cores and the source service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.run.execute import run
from mavstream_server.simulation.scenario import (
    OperatorSpec,
    Overheads,
    QuerySpec,
    Scenario,
    Service,
    SourceSpec,
    StreamSpec,
)
from mavstream_server.simulation.workload.demand import scale_costs

US = 1000
every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))
every_service = pytest.mark.parametrize("service", [one for one in Service if one is not Service.POLICY])


def chain(id_: str, stream: str, *steps: tuple[float, float], class_name: str = "c") -> QuerySpec:
    """A query of (microseconds, selectivity) per operator below an output of 1 us."""
    inputs, plans = stream, []
    for index, (cost, selectivity) in enumerate(steps):
        plans.append(OperatorSpec(f"o{index}", "select", (inputs,), cost * US, 500, selectivity=selectivity))
        inputs = f"o{index}"
    return QuerySpec(id_, class_name, (*plans, OperatorSpec("out", "output", (inputs,), 1 * US, 500)))


def joined(id_: str, left: str, right: str, class_name: str = "c", **join: Any) -> QuerySpec:
    """Two selections, a join of what they pass, and a selection above it."""
    return QuerySpec(
        id_,
        class_name,
        (
            OperatorSpec("left", "select", (left,), 2 * US, 500, selectivity=0.5),
            OperatorSpec("right", "select", (right,), 3 * US, 500, selectivity=0.75),
            OperatorSpec("both", "join", ("left", "right"), 5 * US, 500, selectivity=0.4, **join),
            OperatorSpec("kept", "select", ("both",), 1 * US, 500, selectivity=0.9),
            OperatorSpec("out", "output", ("kept",), 1 * US, 500),
        ),
    )


def mixed(tuples: int | None = 600, **changes: Any) -> Scenario:
    """Chains, a join and a union in three classes, at a load of a half."""
    union = QuerySpec(
        "u",
        "low",
        (
            OperatorSpec("all", "union", ("s0", "s1", "s4"), 2 * US, 500),
            OperatorSpec("out", "output", ("all",), 1 * US, 500),
        ),
    )
    plan = Scenario(
        "mixed",
        priorities={"high": 6, "middle": 3, "low": 1},
        streams=tuple(StreamSpec(f"s{number}", 2000, tuples=tuples) for number in range(5)),
        queries=(
            chain("a", "s0", (10, 0.5), (5, 1.0), class_name="high"),
            chain("b", "s1", (8, 0.25), class_name="middle"),
            joined("j", "s2", "s3", "low"),
            union,
        ),
        sources=SourceSpec(cost=1 * US, setup=500),
        overheads=Overheads(context_switch=300, empty_visit=100, noise=0.05),
    )
    return replace(plan, **changes)


def conserved(result: Result) -> bool:
    """Whether every tuple that was read was answered, dropped, or is still queued."""
    counts = result.counts
    return counts.arrived == counts.answers + counts.dropped + counts.queued + counts.in_flight


# For every policy


@every_policy
@pytest.mark.parametrize("cores", [1, 3])
def test_the_answers_do_not_depend_on_the_policy(policy: str, cores: int) -> None:
    result = run(mixed(cores=cores), policy, seed=3)
    assert result.counts.arrived == 600 + 600 + 1200 + 1800
    assert {id_: one.responses.size for id_, one in result.queries.items()} == {
        "a": 300,
        "b": 150,
        "j": int((300 + 450) * 0.4 * 0.9),
        "u": 1800,
    }
    assert conserved(result)
    assert result.counts.queued == 0


@every_policy
def test_no_tuple_is_lost_at_the_end_of_the_run(policy: str) -> None:
    result = run(mixed(tuples=None, seconds=0.2, cores=2), policy, seed=5)
    assert conserved(result)
    assert result.seconds == 0.2


@every_service
@pytest.mark.parametrize("policy", ["rr", "hr", "fifo", "cqc", "mbd", "path_capacity"])
def test_the_answers_do_not_depend_on_how_sources_are_served(policy: str, service: Service) -> None:
    plan = mixed()
    result = run(replace(plan, sources=replace(plan.sources, service=service)), policy, seed=3)
    assert result.sources == service
    assert [one.responses.size for one in result.queries.values()] == [300, 150, 270, 1800]
    assert conserved(result)


@every_policy
@pytest.mark.parametrize("cores", [1, 2])
def test_one_seed_gives_one_run_to_the_last_event(policy: str, cores: int) -> None:
    plan = mixed(tuples=200, cores=cores)
    first, again, other = (run(plan, policy, seed=seed, digest=True) for seed in (7, 7, 8))
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert first.classes == again.classes


@every_policy
def test_cores_do_not_idle_while_there_is_work(policy: str) -> None:
    """Twice the capacity of two cores arrives, so that they must always be busy."""
    queries = tuple(
        chain(f"q{number}", f"s{number}", (100, 1.0), class_name=f"c{number % 4}") for number in range(20)
    )
    plan = Scenario(
        "overload",
        priorities={"c0": 4, "c1": 3, "c2": 2, "c3": 1},
        streams=tuple(StreamSpec(f"s{number}", 2000) for number in range(20)),
        queries=queries,
        cores=2,
        sources=SourceSpec(Service.DIRECT),
        seconds=0.2,
    )
    result = run(plan, policy)
    assert result.utilisation > 0.98


@pytest.mark.parametrize("policy", ["rr", "rb", "cqc", "abd", "mbd", "segment"])
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_utilisation_is_the_offered_load(policy: str, load: float) -> None:
    """Without overheads, over eight runs; the scatter is that of the number of arrivals."""
    plan = mixed(tuples=None, seconds=0.1, overheads=Overheads(), sources=SourceSpec(Service.DIRECT))
    plan = replace(
        plan,
        queries=tuple(
            replace(query, operators=tuple(replace(part, setup=0.0) for part in query.operators))
            for query in plan.queries
        ),
    )
    scaled = scale_costs(plan, load)
    found = np.array([run(scaled, policy, seed=seed).utilisation for seed in range(8)])
    assert abs(found.mean() - load) < 5 * found.std(ddof=1) / np.sqrt(8)
    assert found.std() < 0.1 * load
