"""Admission on scripted metrics: the expected cost of a new query, and the targets it would endanger."""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.differential.cases import random_case

from mavstream_protocol.admission import AdmissionEstimate, AdmissionPolicy, Outlook
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.core.metrics import Latency, OperatorMetrics
from mavstream_server.optimizer.admission.cost_history import CALL_NS, CostHistory, Demand
from mavstream_server.optimizer.admission.estimate import Candidate, estimate
from mavstream_server.optimizer.admission.load import Arrivals
from mavstream_server.optimizer.admission.occupancy import ClassLoad, Occupancy
from mavstream_server.optimizer.admission.recent import Pending, RecentAdmissions
from mavstream_server.optimizer.target_index import IndexedTarget, TargetIndex
from mavstream_server.testing.streams import parse_fields

LATENCY = {"latency": {"mean": "10ms", "tolerance": "0%"}}
NO_TARGETS = TargetIndex()


def answered(mean_ms: float, count: int = 100) -> Latency:
    """Return the latency of answers that all took the same time."""
    ns = int(mean_ms * 1e6)
    return Latency(count, count * ns, ns, {8 * (ns.bit_length() - 1): count})


def demand(work: float, turns: float = 100.0, rows: float = 1000.0, memory: float = 0.0) -> Demand:
    return Demand(rows, turns, work, memory, row_bytes=24.0)


def judge(
    work: float,
    qos: dict[str, Any] | None = None,
    *,
    occupancy: Occupancy | None,
    class_name: str = "low",
    priority: int = 1,
    targets: TargetIndex = NO_TARGETS,
    silent: tuple[str, ...] = (),
    memory: float = 0.0,
) -> AdmissionEstimate:
    candidate = Candidate(
        class_name, priority, QosSpec.model_validate(qos or {}), demand(work, memory=memory), silent
    )
    return estimate(candidate, occupancy, targets, AdmissionPolicy.REFUSE)


def two_classes(high: float = 0.2, low: float = 0.2) -> Occupancy:
    """Turns of 1 ms; the important class answers in 2 ms."""
    return Occupancy(
        {
            "high": ClassLoad(9, 1000, high, high * 1000, answered(2)),
            "low": ClassLoad(1, 1000, low, low * 1000, answered(5)),
        },
        by_priority=True,
    )


def test_the_example_in_the_documents_is_the_one_in_the_api() -> None:
    page = Path(__file__).parents[2] / "docs" / "admission.md"
    (text,) = re.findall(r"^```json\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    shown = AdmissionEstimate.model_validate_json(text)
    (example,) = AdmissionEstimate.model_json_schema()["examples"]
    assert shown == AdmissionEstimate.model_validate(example)


# Targets of the new query


def test_cost_and_utilisation_before_and_after_are_reported() -> None:
    found = judge(0.1, occupancy=two_classes())
    assert found.cost_us_per_s == pytest.approx(100_000)
    assert (found.utilisation.before, found.utilisation.after) == (pytest.approx(0.4), pytest.approx(0.5))
    assert (found.class_utilisation.before, found.class_utilisation.after) == (0.2, pytest.approx(0.3))
    assert found.admitted
    assert found.targets == found.warnings == ()


def test_the_latency_of_its_class_is_scaled_by_the_growth_of_the_queue() -> None:
    # One class, turns of 1 ms: 1 / (1 - 0.5) becomes 1 / (1 - 0.75), twice as long.
    half = Occupancy({"low": ClassLoad(1, 1000, 0.5, 500, answered(3))}, by_priority=True)
    new = Candidate("low", 1, QosSpec.model_validate(LATENCY), demand(0.25, turns=250))
    (target,) = estimate(new, half, NO_TARGETS, AdmissionPolicy.WARN).targets
    assert target.expected == pytest.approx(6)
    assert (target.objective, target.statistic, target.kept) == ("latency", "mean", Outlook.YES)


def test_a_class_without_answers_is_estimated_by_its_queue_alone() -> None:
    half = Occupancy({"low": ClassLoad(1, 1000, 0.25, 250)}, by_priority=True)
    for name, factor in (("mean", 1.0), ("p95", 2.9957)):
        qos = {"latency": {name: "1s"}}
        new = Candidate("low", 1, QosSpec.model_validate(qos), demand(0.25, turns=250))
        (target,) = estimate(new, half, NO_TARGETS, AdmissionPolicy.WARN).targets
        # M/M/1 at one half, and up to 50 ms of linger while the engine is busy.
        assert target.expected == pytest.approx(2 * factor + 0.5 * 50, rel=1e-3)


def test_a_target_that_cannot_be_kept_is_reported_with_numbers() -> None:
    found = judge(0.75, LATENCY, occupancy=two_classes())
    (target,) = found.targets
    assert (target.kept, found.admitted, target.expected) == (Outlook.NO, False, None)
    assert target.reason == (
        "mean is expected to grow without bound, at most 10 ms are allowed: "
        "class 'low' needs 94% of the engine's time, and at most 81% is available"
    )
    assert found.warnings[0] == f"its latency target cannot be met: {target.reason}"
    assert (
        found.warnings[1]
        == "it would fall behind: class 'low' needs 94% of the engine's time, and at most 81% is available"
    )


def test_an_overloading_query_without_targets_is_admitted_with_a_warning() -> None:
    found = judge(0.75, occupancy=two_classes())
    assert found.admitted
    assert found.warnings == (
        "it would fall behind: class 'low' needs 94% of the engine's time, and at most 81% is available",
    )


def test_an_important_query_is_admitted_beside_an_overload_of_lower_classes() -> None:
    full = two_classes(high=0.2, low=0.8)
    assert judge(0.2, LATENCY, occupancy=full, class_name="high", priority=9).admitted
    assert not judge(0.2, LATENCY, occupancy=full).admitted


def test_with_a_policy_without_classes_all_queries_share_one_queue() -> None:
    in_line = Occupancy(two_classes(high=0.2, low=0.8).classes, by_priority=False)
    found = judge(0.2, LATENCY, occupancy=in_line, class_name="high", priority=9)
    assert not found.admitted
    assert "all queries need" in found.targets[0].reason


def test_throughput_is_compared_with_the_free_capacity_of_the_class() -> None:
    # 1000 rows take 0.1 - 100 * 30 us = 0.097 of the time; the class can have 0.8 and 0.194 are used.
    occupancy = Occupancy({"low": ClassLoad(1, 10, 0.2, 200), "high": ClassLoad(9, 10, 0.2, 200)}, True)
    for least, kept in ((6000, Outlook.YES), (7000, Outlook.NO)):
        qos = {"throughput": {"at_least": least, "tolerance": "0%"}}
        (target,) = judge(0.1, qos, occupancy=occupancy).targets
        assert target.expected == pytest.approx((0.806 - 0.194) / 0.097 * 1000, rel=1e-3)
        assert target.kept is kept


@pytest.mark.parametrize(("memory", "kept"), [(900_000, Outlook.YES), (1_200_000, Outlook.NO)])
def test_memory_is_estimated_from_windows_and_queues(memory: float, kept: Outlook) -> None:
    (target,) = judge(0.1, {"memory": {"at_most": "1MB"}}, occupancy=two_classes(), memory=memory).targets
    assert target.kept is kept
    assert target.expected == pytest.approx(memory, rel=0.01)


def test_without_metrics_or_rows_no_estimate_is_made() -> None:
    found = judge(0.75, LATENCY, occupancy=None)
    assert found.targets[0].kept is Outlook.UNKNOWN
    assert found.utilisation.before is None
    assert found.admitted
    assert found.warnings == ()
    quiet = judge(0.0, LATENCY, occupancy=two_classes(), silent=("doors",))
    assert quiet.targets[0].reason.startswith("unknown: no rows arrived recently on 'doors'")
    assert quiet.targets[0].expected is None


# Targets of running queries


def target_index(*queries: tuple[str, str, dict[str, Any]]) -> TargetIndex:
    return TargetIndex(IndexedTarget(id_, name, QosSpec.model_validate(qos)) for id_, name, qos in queries)


def within(limit: str) -> dict[str, Any]:
    return {"latency": {"mean": limit, "tolerance": "0%"}}


def test_running_queries_that_would_miss_are_named_tightest_first() -> None:
    targets = target_index(
        ("tight", "high", within("3ms")),
        ("loose", "high", within("1s")),
        ("missed", "high", within("1ms")),  # it is missed already, not because of the new query
        ("tighter", "high", within("2500us")),
    )
    found = judge(0.3, occupancy=two_classes(), class_name="high", priority=9, targets=targets)
    assert [one.query for one in found.endangered] == ["tighter", "tight"]
    assert found.endangered_queries == 2
    assert not found.admitted
    one = found.endangered[0]
    assert (one.class_, one.statistic, one.allowed, one.now) == ("high", "mean", 2.5, pytest.approx(2))
    assert one.expected is not None
    assert one.expected > 3
    assert "'tighter' (mean" in found.warnings[0]


def test_less_important_queries_may_be_made_slower() -> None:
    targets = target_index(("tight", "low", within("5100us")))
    high = judge(0.3, occupancy=two_classes(), class_name="high", priority=9, targets=targets)
    assert high.admitted
    assert high.endangered == ()
    assert not judge(0.3, occupancy=two_classes(), targets=targets).admitted


def test_an_overloaded_class_endangers_throughput_and_memory_targets_too() -> None:
    targets = target_index(
        ("much", "low", {"throughput": {"at_least": 10}}), ("small", "low", {"memory": {"at_most": "1MB"}})
    )
    assert judge(0.1, occupancy=two_classes(), targets=targets).endangered_queries == 0
    found = judge(0.9, occupancy=two_classes(), targets=targets)
    assert [(one.query, one.objective) for one in found.endangered] == [
        ("much", "throughput"),
        ("small", "memory"),
    ]
    assert found.endangered[0].expected is None


def test_endangered_queries_are_counted_and_the_first_are_named() -> None:
    targets = target_index(*((f"q{number:03}", "high", within("3ms")) for number in range(100)))
    found = judge(0.3, occupancy=two_classes(), class_name="high", priority=9, targets=targets)
    assert (found.endangered_queries, len(found.endangered)) == (100, 10)
    assert found.warnings[0].endswith("and 90 more")


# Recent admissions


def test_recent_admissions_count_until_they_are_in_the_measured_load() -> None:
    recent = RecentAdmissions(10.0)
    recent.add("low", demand(0.2, turns=100), now=1000.0)
    recent.add("low", demand(0.1, turns=50), now=1005.0)
    assert recent.pending(1005.0) == {"low": Pending(pytest.approx(0.2), pytest.approx(100))}
    assert recent.pending(1010.0)["low"].busy == pytest.approx(0.05)
    assert recent.pending(1015.0) == {}


# Expected cost of a plan


STREAMS = {"readings": StreamShape(parse_fields("room string, temp int, humidity int"))}
RATES = {"readings": Arrivals(rows=10_000.0, frames=100.0)}


def typed(where: str = "temp > 20", **above: Any) -> TypedPlan:
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": where},
        **above,
    }
    return infer(Plan.parse({"root": list(nodes)[-1], "nodes": nodes}), STREAMS)


def metrics(name: str, operator: str, cost_ns: float, selectivity: float = 1.0) -> OperatorMetrics:
    return OperatorMetrics(name, operator, "operational", "ready", 0, 0, 0, cost_ns, selectivity, 1000, 0, {})


def test_without_a_cost_history_the_estimates_of_the_cost_model_are_used() -> None:
    found = CostHistory().assess(typed(), RATES)
    # Per row: 20 ns at the source, 30 + 5 for the select and its condition; a third are output at 100.
    # A call costs 10 us, so each costs at least a hundred turns.
    source, select, output = 10_000 * 20, 10_000 * 35, 10_000 / 3 * 100
    least = 100 * CALL_NS
    assert found.work == pytest.approx(sum(max(one, least) for one in (source, select, output)) / 1e9)
    assert (found.rows, found.turns) == (10_000, 100)


def test_costs_are_the_median_of_operators_of_the_same_kind() -> None:
    experience = CostHistory()
    for cost in (350.0, 700.0, 35_000.0):
        experience.learn(typed("humidity > 5"), [metrics("hot", "select", cost, 0.5)], {"readings": 10_000.0})
    found = experience.assess(typed("temp > 20"), RATES)
    select = 10_000 * 700  # twenty times the estimate, in the median
    assert found.work == pytest.approx((select + 2 * 100 * CALL_NS) / 1e9)


def test_selectivity_is_that_of_an_equal_condition_that_runs() -> None:
    aggregate = {
        "mean": {
            "op": "aggregate",
            "input": "hot",
            "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)"},
        }
    }
    fast = {"readings": Arrivals(rows=10_000_000.0, frames=100.0)}
    experience = CostHistory()
    guessed = experience.assess(typed(**aggregate), fast)
    experience.learn(typed(), [metrics("hot", "select", 35.0, 0.001)], {"readings": 10_000.0})
    known = experience.assess(typed(**aggregate), fast)
    assert known.work < 0.8 * guessed.work
    other = experience.assess(typed("temp > 21", **aggregate), fast)
    assert other.work == pytest.approx(guessed.work)


def test_windows_hold_the_rows_of_their_length() -> None:
    join = {
        "doors": {"op": "source", "stream": "readings"},
        "pairs": {
            "op": "join",
            "left": "hot",
            "right": "doors",
            "on": [["room", "room"]],
            "within": "10s",
            "compute": {"a": "l.temp"},
        },
    }
    found = CostHistory().assess(typed(**join), RATES)
    # A third of the left rows and all right ones, ten seconds of each.
    assert found.memory > (10_000 / 3 + 10_000) * 10 * 24


@pytest.mark.parametrize("seed", range(3))
def test_any_plan_can_be_learned_and_assessed(seed: int) -> None:
    """An estimate must not fail registration, whatever was measured and however few rows arrive."""
    random, experience = Random(seed), CostHistory()
    for number in range(20):
        case = random_case(f"{seed}.{number}")
        streams = {one.name: StreamShape(Schema(one.fields), one.event_time) for one in case.scripts}
        plan = infer(Plan.parse({"root": case.root, "nodes": case.nodes}), streams)
        rates = {name: random.choice([0.0, 1e-3, 1e7]) for name in streams}
        costs = [(name, random.choice([0.0, 1e9]), random.choice([0.0, 1e6])) for name in plan.nodes]
        measured = [metrics(name, "source", cost, selectivity) for name, cost, selectivity in costs]
        experience.learn(plan, measured, rates)
        demand = experience.assess(plan, {name: Arrivals(rate, rate) for name, rate in rates.items()})
        assert all(isfinite(one) and one >= 0 for one in demand)
        qos = {**LATENCY, "memory": {"at_most": "1MB"}, "throughput": {"at_least": 1}}
        candidate = Candidate("low", 1, QosSpec.model_validate(qos), demand)
        found = estimate(candidate, two_classes(), NO_TARGETS, AdmissionPolicy.WARN)
        assert AdmissionEstimate.model_validate_json(found.model_dump_json()) == found
