"""Fusing: operators that a policy runs in one turn hand batches over directly, without queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.queries import OnError
from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.slices.trace import Trace
from mavstream_server.engine.states import QueryState
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan, take_time

PLAN = {
    "in": {"op": "source", "stream": "readings"},
    "some": {"op": "select", "input": "in", "where": "x % 2 = 0"},
    "scaled": {"op": "project", "input": "some", "compute": {"y": "10 * x"}},
    "few": {"op": "select", "input": "scaled", "where": "y >= 100"},
}
FUSED = {
    "rr": {"unit": "query"},
    "hr": {"unit": "query"},
    "rb": {"unit": "query", "tuples": None},
    "cqc": {},
    "abd": {},
    "fifo": {},
    "path_capacity": {},
    "mbd": {},
}


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "x int")


def start(readings: ScriptedStream, clock: ManualClock, policy: str, **engine_options: Any) -> PlanRun:
    engine = Engine(clock, policy, sharing=Sharing.OFF, **engine_options)
    engine.attach(readings.name, readings.reader)
    return run_plan(PLAN, "few", [readings], engine=engine)


def fused(run: PlanRun) -> set[str]:
    """Return the operators that get their batches directly."""
    operators = run.query.network.operators
    return {name for name in operators if any(queue.receive for queue in operators[name].inputs)}


@pytest.mark.parametrize("policy", sorted(FUSED))
def test_a_train_passes_all_operators_in_one_turn(
    readings: ScriptedStream, clock: ManualClock, policy: str
) -> None:
    run = start(readings, clock, policy, options=FUSED[policy])
    assert fused(run) >= {"scaled", "few", "#output"}
    readings.rows(*((number,) for number in range(40)))
    run.engine.run()
    assert run.answers() == [(10 * number,) for number in range(10, 40, 2)]
    assert run.engine.loop.slices == 1


@pytest.mark.parametrize("policy", ["rr", "wrr", "hr", "rb", "prb", "chain", "mtiq", "wehr", "morr"])
def test_policies_that_decide_for_each_operator_keep_their_queues(
    readings: ScriptedStream, clock: ManualClock, policy: str
) -> None:
    run = start(readings, clock, policy)
    assert fused(run) == set()
    readings.rows((10,))
    run.engine.run()
    assert run.engine.loop.slices >= 4


def test_sources_are_fused_where_the_policy_serves_them(readings: ScriptedStream, clock: ManualClock) -> None:
    options = {"unit": "query"}
    served = start(readings, clock, "rr", options=options, sources=SourceService.PER_CLASS)
    between = start(readings, clock, "rr", options=options, sources=SourceService.BETWEEN_SLICES)
    assert fused(served) == {"some", "scaled", "few", "#output"}
    assert fused(between) == {"scaled", "few", "#output"}


def test_sources_of_operator_policies_inside_classes_keep_their_queues(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    inside = {"inner": {"policy": "path_capacity"}}
    assert fused(start(readings, clock, "cqc", options=inside)) == {"scaled", "few", "#output"}


def test_statistics_are_those_of_each_operator_alone(readings: ScriptedStream, clock: ManualClock) -> None:
    run = start(readings, clock, "cqc")
    costs = {"some": 100, "scaled": 4000, "few": 700}
    for name, cost in costs.items():
        take_time(run.query.network.operators[name], clock, lambda cost=cost: cost)
    readings.rows(*((number,) for number in range(4000)))
    run.engine.run()
    found = {name: run.query.tasks[name].statistics for name in costs}
    assert {name: each.cost_per_tuple for name, each in found.items()} == costs
    assert found["some"].selectivity == 0.5
    assert run.query.sources["in"].statistics.cost_per_tuple == 0
    (busy,) = run.engine.loop.class_busy.values()
    assert busy == 4000 * 100 + 2000 * 4700


def test_an_error_names_the_operator_that_raised_it(readings: ScriptedStream, clock: ManualClock) -> None:
    nodes = {**PLAN, "scaled": {**PLAN["scaled"], "compute": {"y": "9223372036854775807 + x"}}}
    engine = Engine(clock, "cqc")
    engine.attach(readings.name, readings.reader)
    run = run_plan(nodes, "few", [readings], engine=engine, options=RunOptions(OnError.FAIL))
    readings.rows((10,))
    engine.run()
    assert run.query.state is QueryState.FAILED
    assert run.query.reason is not None
    assert "'scaled'" in run.query.reason


def test_a_broken_operator_is_named_too(readings: ScriptedStream, clock: ManualClock) -> None:
    run = start(readings, clock, "cqc")

    def broken() -> int:
        raise RuntimeError("disk on fire")

    take_time(run.query.network.operators["few"], clock, broken)
    readings.rows((10,))
    run.engine.run()
    assert run.query.reason == "operator 'few' broke: RuntimeError: disk on fire"


def test_a_trace_names_the_operators_of_a_turn(readings: ScriptedStream, clock: ManualClock) -> None:
    run = start(readings, clock, "cqc")
    trace = run.engine.loop.trace = Trace(10)
    readings.rows((10,), (11,))
    run.engine.run()
    (slice_,) = trace.recorded().slices
    assert slice_.operators == ("source", "select", "project", "select", "output")
    assert (slice_.consumed, slice_.produced) == (2 + 2 + 1 + 1 + 1, 2 + 1 + 1 + 1 + 1)


def test_another_policy_fuses_anew_behind_the_rows_that_wait(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    run = start(readings, clock, "rr", train=4)
    readings.rows(*((number,) for number in range(0, 80)))
    for _ in range(9):
        run.engine.step()
    assert run.query.network.account.rows, "rows wait between operators"
    run.engine.switch("cqc")
    assert fused(run) == {"some", "scaled", "few", "#output"}
    readings.rows(*((number,) for number in range(80, 160)))
    run.engine.step()
    run.engine.switch("rr")
    assert fused(run) == set()
    run.engine.run()
    assert run.answers() == [(10 * number,) for number in range(10, 160, 2)], "all of them, in order"


def test_the_adaptive_policy_fuses_as_its_active_policy_does(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    policies = [{"policy": "rr"}, {"policy": "path_capacity"}]
    run = start(readings, clock, "amos", options={"policies": policies, "interval_ms": 1, "switch_delay": 1})
    take_time(run.query.network.operators["some"], clock, lambda: 100_000)
    seen = set()
    for number in range(200):
        readings.rows((2 * number,))
        run.engine.run()
        seen.add(frozenset(fused(run)))
    assert seen == {frozenset(), frozenset({"scaled", "few", "#output"})}
    assert len(run.answers()) == 195


def test_a_slice_is_cut_between_trains(readings: ScriptedStream, clock: ManualClock) -> None:
    run = start(readings, clock, "cqc", train=10)
    take_time(run.query.network.operators["some"], clock, lambda: 1000)
    readings.rows(*((number,) for number in range(100)))
    run.engine.step()
    assert run.query.rows_in == 10
    assert run.engine.loop.busy == 10_000


def test_a_row_that_no_select_passes_costs_no_turn_of_the_operators_above(stream: MakeStream) -> None:
    readings = stream("readings", "ts timestamp, x int", event_time="ts")
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "high": {"op": "select", "input": "in", "where": "x > 10"},
        "twice": {"op": "project", "input": "high", "compute": {"x": "2 * x"}},
    }
    engine = Engine(policy="rr", clock=ManualClock())
    engine.attach("readings", readings.reader)
    run = run_plan(nodes, "twice", [readings], engine=engine)
    for number in range(10):
        readings.rows((number, number))
        engine.run()
    assert engine.loop.slices == 10, "the select alone ran"
    readings.rows((11, 11))
    engine.run()
    assert run.answers() == [(22,)]
    readings.complete()
    engine.run()
    assert run.query.state is QueryState.FINISHED
