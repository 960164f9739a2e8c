"""Migrations that are refused or abandoned, after which the query continues with its old plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.plans.equivalent_plans import (
    COUNTED,
    COUNTED_TOO,
    EVEN_THEN_SMALL,
    PROJECT_BELOW,
    SECOND,
    SMALL_THEN_EVEN,
    counting,
    readings_of,
    rows,
    stage,
    typed,
)
from tests.support.plans.rewriting_steps import IN, Nodes, select

from mavstream_protocol.queries import OnError
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.migration.migration import MigrationRefused
from mavstream_server.engine.query import MigrationStage
from mavstream_server.engine.states import IllegalMove, QueryState
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return readings_of(stream)


@pytest.mark.parametrize(
    ("nodes", "root", "reason"),
    [
        ({**IN, "p": {"op": "project", "input": "in", "compute": {"x": "x"}}}, "p", "answers ts, home, x"),
        ({"also": {"op": "source", "stream": "readings"}, "s": select("also", "x > 0")}, "s", "as also"),
    ],
)
def test_a_plan_that_cannot_give_the_same_answer_is_refused(
    nodes: Nodes, root: str, reason: str, readings: ScriptedStream
) -> None:
    run = run_plan(EVEN_THEN_SMALL, "small", [readings])
    with pytest.raises(MigrationRefused, match=reason):
        run.engine.migrate("q", typed(nodes, root, readings))
    assert stage(run.query) is None


def test_windows_by_rows_are_reused_or_the_migration_is_refused(readings: ScriptedStream) -> None:
    three: Nodes = {"kind": "tumbling", "size": 3}
    run = run_plan({**EVEN_THEN_SMALL, "a": counting("small", three)}, "a", [readings])
    not_reusable = {**PROJECT_BELOW, "t": select("s", "x < 500"), "a": counting("t", three)}
    with pytest.raises(MigrationRefused, match=r"'a' remember: the plan has windows by rows"):
        run.engine.migrate("q", typed(not_reusable, "a", readings))
    readings.rows(*rows(0, 4))
    run.engine.run()
    run.engine.migrate("q", typed({**SMALL_THEN_EVEN, "a": counting("even", three)}, "a", readings))
    readings.rows(*rows(4, 2))
    assert sorted(total for _, _, total, _, _ in run.rows()) == [0, 2, 4]
    assert run.query.migrations.count == 1


def test_a_one_time_query_does_not_migrate_to_an_empty_operator(readings: ScriptedStream) -> None:
    run = run_plan(COUNTED, "a", [readings], options=RunOptions(one_time=True))
    with pytest.raises(MigrationRefused, match="one-time query"):
        run.engine.migrate("q", typed(COUNTED_TOO, "a", readings))


def warming(readings: ScriptedStream, nodes: Nodes = COUNTED_TOO, **options: Any) -> PlanRun:
    """Return a migrating query whose new operators run beside the old ones."""
    run = run_plan(COUNTED, "a", [readings], **options)
    readings.rows(*rows(0, 5))
    run.engine.run()
    run.engine.migrate("q", typed(nodes, "a", readings))
    run.engine.run()
    assert stage(run.query) is MigrationStage.WARMING
    return run


def assert_abandoned(run: PlanRun, why: str) -> None:
    """Assert that the new operators were removed."""
    assert stage(run.query) is None
    assert why in (run.query.migrations.note or "")
    assert set(run.query.tasks) == {"p", "s", "a", "#output"}
    assert [o.name for o in run.query.network.operators.values()] == [*COUNTED, "#output"]
    assert len(run.query.network.operators["in"].outputs) == 1


def test_pausing_abandons_a_migration_and_a_paused_query_refuses_one(readings: ScriptedStream) -> None:
    run = warming(readings)
    run.engine.pause("q")
    assert_abandoned(run, "paused")
    with pytest.raises(IllegalMove, match="is paused; its plan can be swapped while it is running"):
        run.engine.migrate("q", typed(COUNTED_TOO, "a", readings))
    run.engine.resume("q")
    readings.rows(*rows(5, 25))
    assert {(home, n) for home, n, *_ in run.rows()} == {(0, 2), (2, 1), (1, 2)}  # of the second ten seconds


def test_a_new_migration_replaces_one_that_is_not_ready(readings: ScriptedStream) -> None:
    run = warming(readings)
    with pytest.raises(MigrationRefused):
        run.engine.migrate("q", typed(EVEN_THEN_SMALL, "small", readings))
    assert stage(run.query) is MigrationStage.WARMING
    run.engine.migrate("q", typed(COUNTED, "a", readings), version=0)
    assert_abandoned(run, "another plan was asked for")
    readings.rows(*rows(5, 6))
    assert len(run.rows()) == 3
    assert (run.query.migrations.count, run.query.migrations.version) == (0, 0)


@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_a_query_keeps_reading_when_new_operators_are_removed_with_full_queues(
    steps: int, readings: ScriptedStream
) -> None:
    run = warming(readings, policy="simplified_segment", train=2, queue_limit=4)
    readings.rows(*rows(5, 100, step=SECOND // 100), frame=3)
    for _ in range(steps):
        run.engine.step()
    run.engine.migrate("q", typed(COUNTED, "a", readings), version=0)
    run.engine.run()
    assert run.query.rows_in == 105


def test_a_query_that_is_stopped_while_migrating_leaves_nothing(readings: ScriptedStream) -> None:
    run = warming(readings)
    run.engine.stop("q")
    assert run.query.memory.resident == 0
    assert not run.engine.plan_changes.migrations
    assert not run.engine.plan_changes.quiescent_points.wanted


@pytest.mark.parametrize("limit", [5 * SECOND, 20 * SECOND])
def test_a_migration_that_takes_too_long_is_abandoned(
    limit: int, readings: ScriptedStream, clock: ManualClock
) -> None:
    run = run_plan(COUNTED, "a", [readings], clock=clock)
    readings.rows(*rows(0, 1))
    run.engine.run()
    run.engine.migrate("q", typed(COUNTED_TOO, "a", readings), limit=limit)
    run.engine.run()
    if limit < 10 * SECOND:
        assert_abandoned(run, "reach 10s ahead, further than the limit of 5s")
    else:
        assert run.engine.timed
        clock.advance(seconds=21)
        run.engine.step()
        assert_abandoned(run, "after 20s its new operators did not know yet what they must")
        assert not run.engine.timed


def test_a_failing_new_operator_abandons_the_migration_and_the_query_continues(
    readings: ScriptedStream,
) -> None:
    def computing(nodes: Nodes, x: str) -> Nodes:
        return {**nodes, "p": {**nodes["p"], "compute": {"home": "home", "x": x}}}

    sound, failing = (f"CAST(x + 0 * sqrt({under}) AS int)" for under in ("abs(x)", "6 - x"))
    strict = RunOptions(on_error=OnError.FAIL)
    run = run_plan(computing(COUNTED, sound), "a", [readings], options=strict)
    readings.rows(*rows(0, 5))
    run.engine.run()
    run.engine.migrate("q", typed(computing(COUNTED_TOO, failing), "a", readings))
    readings.rows(*rows(5, 4))
    run.engine.run()
    assert run.query.state is QueryState.RUNNING
    assert_abandoned(run, "operator '+p' failed")
    readings.rows(*rows(9, 2))
    assert len(run.rows()) == 3


def test_memory_of_new_operators_counts_and_too_much_abandons_the_migration(readings: ScriptedStream) -> None:
    run = warming(readings, memory_limit=1 << 20, train=64)
    alone = run.query.network.operators["a"].state_bytes
    readings.rows(*[(6 * SECOND, n, n * 2) for n in range(1000)])
    run.engine.run()
    assert run.query.memory.state > 1.5 * run.query.network.operators["a"].state_bytes > alone
    less = int(run.query.memory.state * 0.75)
    run.query.request = replace(run.query.request, memory_limit=less)
    readings.rows(*[(7 * SECOND, n, n * 2) for n in range(1000)])
    run.engine.run()
    assert run.query.state is QueryState.RUNNING
    assert_abandoned(run, "held more than")


@pytest.mark.parametrize("policy", ["rr", "cqc", "abd", "segment", "mbd"])
def test_policies_classes_and_snapshots_work_during_a_migration(
    policy: str, readings: ScriptedStream
) -> None:
    run = warming(readings)
    run.engine.switch(policy)
    run.engine.set_class("urgent", 9)
    run.engine.changes.reclass("q", "urgent")
    saved = run.engine.snapshot("q")
    offset = run.sink.offset
    readings.rows(*rows(5, 25))
    answers = run.rows()
    assert run.query.migrations.count == 1
    engine = Engine(run.engine.clock)
    engine.attach("readings", readings.reader)
    again = run_plan(COUNTED, "a", [readings], engine=engine, saved=saved)
    assert again.rows() == answers[offset:]
