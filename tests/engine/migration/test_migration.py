"""Migration of a running query: operators that are reused, operators that start empty, and its benefit."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import MakeStream
from tests.support.plans.equivalent_plans import (
    COUNTED,
    COUNTED_TOO,
    EVEN_THEN_SMALL,
    FIELDS,
    SMALL_THEN_EVEN,
    counting,
    readings_of,
    rows,
    stage,
    typed,
)
from tests.support.plans.rewriting_steps import DOORS, IN, Nodes, select

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_server.engine.query import MigrationStage
from mavstream_server.engine.reporting import query_metrics
from mavstream_server.engine.states import QueryState
from mavstream_server.optimizer.plan_searcher import operator_metrics
from mavstream_server.optimizer.rules.plan import LEAST_SAVING
from mavstream_server.planning.rewriting import PlanChoice, PlanMetrics, choose
from mavstream_server.planning.rewriting.choice import PlanSubject
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable, run_plan


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return readings_of(stream)


def test_a_stateless_plan_migrates_at_once(readings: ScriptedStream) -> None:
    run = run_plan(EVEN_THEN_SMALL, "small", [readings], train=16)
    readings.rows(*rows(0, 200), frame=10)
    for _ in range(9):
        run.engine.step()
    before, output = run.sink.offset, run.query.output
    assert before < 100
    run.engine.migrate("q", typed(SMALL_THEN_EVEN, "even", readings), version=7)
    assert stage(run.query) is MigrationStage.DRAINING
    answers = run.rows()
    assert [x for _, _, x in answers] == list(range(0, 200, 2))
    assert (run.sink.offset, run.query.rows_in, run.query.output.latency.count) == (100, 200, 100)
    assert run.query.output is output
    stats = query_metrics(run.query, 1)
    assert (stats.plan_version, stats.plan_migrations, stats.migration, stats.migration_note) == (
        7,
        1,
        None,
        None,
    )
    assert [operator.name for operator in stats.operators] == ["in", "small", "even", "#output"]
    assert stats.operators[1].rows_out > 0


def test_operators_above_reordered_selects_are_reused(readings: ScriptedStream) -> None:
    run = run_plan({**EVEN_THEN_SMALL, "a": counting("small")}, "a", [readings])
    readings.rows(*rows(0, 8))
    run.rows()
    held = run.query.network.operators["a"]
    run.engine.migrate("q", typed({**SMALL_THEN_EVEN, "a": counting("even")}, "a", readings))
    readings.rows(*rows(8, 3))
    counted = {(home, n, total) for home, n, total, _, _ in run.rows()}
    assert run.query.network.operators["a"] is held
    assert counted == {(0, 2, 6), (2, 2, 10), (1, 1, 4)}
    assert run.query.migrations.count == 1


def test_scaled_aggregates_keep_their_weights_after_a_migration(readings: ScriptedStream) -> None:
    scaled = {"op": "aggregate", "scaled": True, "window": {"kind": "tumbling", "size": "10s"}}
    first = {**EVEN_THEN_SMALL, "a": {**scaled, "input": "small", "compute": {"n": "count(*)"}}}
    other = {**SMALL_THEN_EVEN, "a": {**scaled, "input": "even", "compute": {"n": "count(*)"}}}
    run = run_plan(first, "a", [readings])
    plain = run_plan(first, "a", [readings], engine=run.engine, id_="plain")
    for each in (run, plain):
        each.query.sources["in"].work.shed(0.5)
    readings.rows(*rows(0, 25))
    run.engine.run()
    run.engine.migrate("q", typed(other, "a", readings))
    readings.rows(*rows(25, 25))
    assert run.rows() == plain.rows() != []
    assert run.query.migrations.count == 1


def test_new_windows_run_beside_the_old_ones_until_incomplete_ones_are_closed(
    readings: ScriptedStream,
) -> None:
    run = run_plan(COUNTED, "a", [readings])
    plain = run_plan(COUNTED, "a", [readings], engine=run.engine, id_="plain")
    readings.rows(*rows(0, 5))
    run.engine.run()
    run.engine.migrate("q", typed(COUNTED_TOO, "a", readings), version=3)
    run.engine.run()
    held = run.query.network.operators["a"]
    readings.rows(*rows(5, 5))
    run.engine.run()
    assert (
        stage(run.query) is MigrationStage.WARMING
    )  # the new window of the first ten seconds lacks five rows
    assert query_metrics(run.query, 1).migration == "warming"
    assert {operator.name for operator in query_metrics(run.query, 1).operators} == {
        *COUNTED,
        "#output",
    }
    readings.rows(*rows(10, 1))
    run.engine.run()
    assert stage(run.query) is None
    assert run.query.network.operators["a"] is not held
    readings.rows(*rows(11, 30))
    assert run.rows() == plain.rows() != []
    assert (run.query.migrations.version, run.query.migrations.count) == (3, 1)
    assert set(run.query.tasks) == {"p", "s", "a", "#output"}


def joined(left: str, right: str) -> Nodes:
    compute = {"home": "l.home", "x": "l.x", "y": "r.x"}
    node = {"op": "join", "left": left, "right": right, "on": [["home", "home"]], "within": "3s"}
    return {**node, "compute": compute}


ABOVE = {**IN, **DOORS, "j": joined("in", "doors"), "s": select("j", "x % 2 = 0")}
BELOW = {**IN, **DOORS, "s": select("in", "x % 2 = 0"), "j": joined("s", "doors")}


def test_pairs_across_a_migration_are_found_once(stream: MakeStream, readings: ScriptedStream) -> None:
    doors = stream("doors", FIELDS, event_time="ts")
    run = run_plan(ABOVE, "s", [readings, doors])
    plain = run_plan(ABOVE, "s", [readings, doors], engine=run.engine, id_="plain")
    migrated_at = None
    for second in range(30):
        readings.rows(*rows(second, 1))
        doors.rows(*rows(second, 1))
        run.engine.run()
        if second == 10:
            run.engine.migrate("q", typed(BELOW, "j", readings, doors))
        if run.query.migrations.count and migrated_at is None:
            migrated_at = second
    assert migrated_at == 14  # rows of second 10 may join rows up to second 13
    assert sorted(run.rows()) == sorted(plain.rows()) != []


def test_new_operators_get_marks_of_streams_that_ended_or_became_idle_before(
    stream: MakeStream, readings: ScriptedStream
) -> None:
    doors = stream("doors", FIELDS, event_time="ts")
    run = run_plan(ABOVE, "s", [readings, doors])
    doors.rows(*rows(0, 10))
    doors.complete()
    readings.rows(*rows(0, 10))
    expected = sorted(run.rows())
    run.engine.migrate("q", typed(BELOW, "j", readings, doors))
    readings.rows(*rows(10, 10))
    assert sorted(run.rows()) == sorted([*expected, (1, 10, 7), (0, 12, 9)])
    assert run.query.migrations.count == 1
    readings.complete()
    run.engine.run()
    assert run.query.state is QueryState.FINISHED


def test_a_union_of_a_new_plan_completes_with_its_inputs(
    stream: MakeStream, readings: ScriptedStream
) -> None:
    doors = stream("doors", FIELDS, event_time="ts")
    both = {"op": "union", "inputs": ["in", "doors"]}
    above = {**IN, **DOORS, "u": both, "s": select("u", "x >= 0")}
    below = {**IN, **DOORS, "s": select("in", "x >= 0"), "t": select("doors", "x >= 0")}
    below["u"] = {"op": "union", "inputs": ["s", "t"]}
    run = run_plan(above, "s", [readings, doors])
    doors.complete()
    run.engine.run()
    run.engine.migrate("q", typed(below, "u", readings, doors))
    readings.rows(*rows(0, 5))
    readings.complete()
    assert len(run.rows()) == 5
    assert (run.query.migrations.count, run.query.state) == (1, QueryState.FINISHED)


def test_table_joins_continue_after_a_migration(
    readings: ScriptedStream, tmp_path: Path, clock: ManualClock
) -> None:
    homes = ScriptedTable(tmp_path / "tables", "homes", "home int, owner string", clock)
    homes.put((0, "Ann"), (1, "Bob"))
    found = {"op": "join", "right": "homes", "on": [["home", "home"]]}
    compute = {"x": "l.x", "owner": "r.owner"}
    table = {**IN, "homes": {"op": "table", "table": "homes"}}
    above = {**table, "j": {**found, "left": "in", "compute": compute}, "s": select("j", "x % 2 = 0")}
    below = {**table, "s": select("in", "x % 2 = 0"), "j": {**found, "left": "s", "compute": compute}}
    run = run_plan(above, "s", [readings], tables=[homes], clock=clock)
    readings.rows(*rows(0, 6))
    run.engine.run()
    new = infer(
        Plan.parse({"root": "j", "nodes": below}), {"readings": readings.shape}, {"homes": homes.schema}
    )
    run.engine.migrate("q", new)
    clock.advance(seconds=1)
    homes.put((0, "Cid"), (1, "Bob"))
    readings.rows(*rows(6, 6))
    assert run.rows() == [(0, "Ann"), (4, "Bob"), (6, "Cid"), (10, "Bob")]
    assert run.query.migrations.count == 1
    homes.close()


def test_counters_continue_after_a_migration(readings: ScriptedStream) -> None:
    roots = {**IN, "s": select("in", "sqrt(x) >= 0"), "t": select("s", "x < 100")}
    other = {**IN, "t": select("in", "x < 100"), "s": select("t", "sqrt(x) >= 0")}
    run = run_plan(roots, "t", [readings])
    readings.rows((0, 0, -1), (1, 0, 4))
    run.engine.run()
    run.engine.migrate("q", typed(other, "s", readings))
    readings.rows((2, 0, -1), (3, 0, 9))
    assert [x for _, _, x in run.rows()] == [4, 9]
    assert run.query.counters["s"] == {"errors": 2}


# Benefit


EVEN_FIRST = {**IN, "even": select("in", "x % 2 = 0"), "home": select("even", "home = 0")}


def test_after_selectivities_change_a_migration_reduces_the_work(readings: ScriptedStream) -> None:
    """At first few rows are even and all are of home 0; then all are even and few are of home 0."""
    plan = Plan.parse({"root": "home", "nodes": EVEN_FIRST})
    run = run_plan(EVEN_FIRST, "home", [readings], train=64)
    plain = run_plan(EVEN_FIRST, "home", [readings])
    clock = iter(range(1_000_000))

    def fed(few_even: bool) -> float:
        """Feed rows; returns how many rows the selects read per fed row."""
        numbers = range(6000)
        made = [(next(clock), 0, 0 if n % 10 == 0 else 1) for n in numbers]
        if not few_even:
            made = [(next(clock), 0 if n % 10 == 0 else 1, 0) for n in numbers]
        selects = [task for task in run.query.tasks.values() if task.operator == "select"]
        before = [task.work.rows_out for task in selects]
        readings.rows(*made, frame=1000)
        run.engine.run()
        return 1 + (selects[0].work.rows_out - before[0]) / len(made)

    def chosen() -> PlanChoice:
        metrics = PlanMetrics({"readings": 1000.0}, operator_metrics(query_metrics(run.query, 1)))
        return choose(PlanSubject(plan, {"readings": readings.shape}), metrics)

    assert fed(few_even=True) == 1.1
    assert chosen().saving < LEAST_SAVING
    assert fed(few_even=False) == 2.0
    found = chosen()
    assert found.saving > LEAST_SAVING
    run.engine.migrate("q", infer(found.cheapest.plan, {"readings": readings.shape}))
    run.engine.run()
    assert fed(few_even=False) == 1.1
    assert run.answers() == plain.rows()
    assert run.query.migrations.count == 1


def test_a_member_of_a_shared_pipeline_migrates_alone(readings: ScriptedStream) -> None:
    run = run_plan(EVEN_FIRST, "home", [readings], train=64)
    other = run_plan(EVEN_FIRST, "home", [readings], engine=run.engine, id_="other")

    def fed(first: int) -> None:
        readings.rows(*[(n, n % 3, n % 5) for n in range(first, first + 500)], frame=20)
        run.engine.run()

    fed(0)
    fed(500)
    assert run.query.shared
    assert other.query.shared
    turned = {
        "in": EVEN_FIRST["in"],
        "home": {**EVEN_FIRST["home"], "input": "in"},
        "even": {**EVEN_FIRST["even"], "input": "home"},
    }
    plan = Plan.parse({"root": "even", "nodes": turned})
    run.engine.migrate("q", infer(plan, {"readings": readings.shape}))
    assert not run.query.shared
    fed(1000)
    assert run.query.migrations.count == 1
    assert not other.query.shared
    fed(1500)
    assert run.answers() == other.rows()
