"""Distinct: the rows of each window without duplicates, and everything else that an operator must do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import US, Bench, shares
from tests.support.plans.equivalent_plans import EVEN_THEN_SMALL, SMALL_THEN_EVEN, readings_of, rows, typed
from tests.support.plans.rewriting_steps import plan_of, select, step_of, steps_of
from tests.support.plans.sample_plans import IN, SECOND, STREAMS, problems

from mavstream_protocol.plans.inference import check_one_time, infer
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import TypedDistinct
from mavstream_server.engine.reporting import query_metrics
from mavstream_server.engine.states import QueryState
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.costing.model import CostModel
from mavstream_server.planning.rewriting.rules import drop_columns, select_below_node
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

MS = 1000
READINGS = {"in": {"op": "source", "stream": "readings"}}
TEN_MS = {"kind": "tumbling", "size": "10ms"}
FEW = {"op": "project", "input": "in", "compute": {"room": "room", "x": "x"}}


def distinct(input_: str, window: dict[str, Any]) -> dict[str, Any]:
    return {"op": "distinct", "input": input_, "window": window}


def few(window: dict[str, Any]) -> dict[str, Any]:
    """Return a plan with the distinct rooms and values."""
    return {**READINGS, "few": FEW, "d": distinct("few", window)}


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, room string null, x float null", event_time="ts")


# Answers


def test_equal_rows_are_emitted_once_in_order_of_first_occurrence(readings: ScriptedStream) -> None:
    readings.rows((1, "b", 1.0), (2, "a", 1.0), (3, "b", 1.0), (4, "b", 2.0), (5, "a", 1.0))
    readings.complete()
    assert run_plan(few(TEN_MS), "d", [readings]).rows() == [
        ("b", 1.0, 0, 10 * MS),
        ("a", 1.0, 0, 10 * MS),
        ("b", 2.0, 0, 10 * MS),
    ]


def test_null_equals_null_and_zero_minus_zero(readings: ScriptedStream) -> None:
    readings.rows((1, None, None), (2, None, 0.0), (3, None, -0.0), (4, None, None), (5, "", None))
    readings.complete()
    found = [row[:2] for row in run_plan(few(TEN_MS), "d", [readings]).rows()]
    assert found == [(None, None), (None, 0.0), ("", None)]


def test_every_window_is_answered_separately(readings: ScriptedStream) -> None:
    readings.rows((1 * MS, "a", 1.0), (9 * MS, "a", 1.0), (11 * MS, "a", 1.0), (30 * MS, "a", 1.0))
    run = run_plan(few(TEN_MS), "d", [readings])
    assert [row[2] for row in run.rows()] == [0, 10 * MS]  # the last one is open
    readings.complete()
    assert [row[2] for row in run.rows()] == [0, 10 * MS, 30 * MS]


def test_windows_may_overlap(readings: ScriptedStream) -> None:
    readings.rows((1 * MS, "a", 1.0), (6 * MS, "b", 1.0), (7 * MS, "a", 1.0), (12 * MS, "b", 1.0))
    readings.complete()
    window = {"kind": "hopping", "size": "10ms", "hop": "5ms"}
    assert [(row[0], row[2] // MS) for row in run_plan(few(window), "d", [readings]).rows()] == [
        ("a", -5),
        ("a", 0),
        ("b", 0),
        ("b", 5),
        ("a", 5),
        ("b", 10),
    ]


def test_windows_may_be_by_rows(readings: ScriptedStream) -> None:
    readings.rows(*[(n, "ab"[n % 2], float(n // 4)) for n in range(10)])
    readings.complete()
    window = {"kind": "tumbling", "size": 4}
    assert run_plan(few(window), "d", [readings]).rows() == [
        ("a", 0.0, 0, 4),
        ("b", 0.0, 0, 4),
        ("a", 1.0, 4, 8),
        ("b", 1.0, 4, 8),
    ]


def test_windows_are_bounded_by_begin_and_until(readings: ScriptedStream) -> None:
    window = {**TEN_MS, "begin": "1970-01-01T00:00:00.005Z", "until": "1970-01-01T00:00:00.020Z"}
    readings.rows(*[(n * MS, "a", 1.0) for n in range(40)])
    run = run_plan(few(window), "d", [readings])
    assert [row[2:] for row in run.rows()] == [(5 * MS, 15 * MS), (15 * MS, 20 * MS)]
    assert run.query.state is QueryState.FINISHED


@pytest.mark.parametrize("partial", [False, True])
def test_a_window_that_began_before_the_query_is_answered_if_it_may_be_partial(
    readings: ScriptedStream, partial: bool
) -> None:
    readings.rows((1 * MS, "a", 1.0))
    run = run_plan(few({**TEN_MS, "partial": partial}), "d", [readings], earliest=False)
    readings.rows((2 * MS, "b", 1.0), (11 * MS, "c", 1.0), (25 * MS, "d", 1.0))
    assert [row[0] for row in run.rows()] == (["b", "c"] if partial else ["c"])


def test_late_rows_are_counted_and_excluded(readings: ScriptedStream) -> None:
    readings.rows((1 * MS, "a", 1.0), (12 * MS, "b", 1.0), (2 * MS, "late", 1.0), (30 * MS, "c", 1.0))
    run = run_plan(few(TEN_MS), "d", [readings])
    assert [row[0] for row in run.rows()] == ["a", "b"]
    assert run.query.counters["d"] == {"late": 1}


def test_answers_have_the_event_time_of_the_end_of_their_window(readings: ScriptedStream) -> None:
    above = {"kind": "tumbling", "size": "9999us"}
    nodes = few(TEN_MS) | {
        "n": {"op": "aggregate", "input": "d", "window": above, "compute": {"n": "count(*)"}},
    }
    readings.rows((1, "a", 1.0), (2, "a", 1.0), (11 * MS, "a", 1.0), (60 * MS, "a", 1.0))
    readings.complete()
    # 9999 us is the first microsecond of the second window above.
    assert run_plan(nodes, "n", [readings]).rows()[0] == (1, 9999, 2 * 9999)


def test_a_one_time_query_ends_with_its_first_window(readings: ScriptedStream) -> None:
    readings.rows(*[(n * 4 * MS, "ab"[n % 2], 1.0) for n in range(12)])
    run = run_plan(few(TEN_MS), "d", [readings], options=RunOptions(one_time=True))
    assert [row[:3] for row in run.rows()] == [("a", 1.0, 0), ("b", 1.0, 0)]
    assert run.query.state is QueryState.FINISHED


def test_rows_of_closed_windows_take_no_memory(readings: ScriptedStream) -> None:
    run = run_plan(few(TEN_MS), "d", [readings])
    sizes = []
    for second in range(30):
        readings.rows(*[(second * US + n * MS, "a", float(second * 1000 + n)) for n in range(1000)])
        run.engine.run()
        sizes.append(run.query.memory.state)
    assert max(sizes[10:]) <= max(sizes[:10]) * 1.1  # keys are removed from time to time


def test_distinct_is_reported_by_its_name(readings: ScriptedStream) -> None:
    run = run_plan(few(TEN_MS), "d", [readings])
    assert [each.operator for each in query_metrics(run.query, 1).operators] == [
        "source",
        "project",
        "distinct",
        "output",
    ]


# Plans


def test_the_window_adds_two_columns() -> None:
    found = infer(plan_of({**IN, "d": distinct("in", SECOND)}, "d"), STREAMS)
    names = found.nodes["in"].schema.names
    assert found.schema.names == (*names, "window_start", "window_end")
    check_one_time(found)


@pytest.mark.parametrize(
    ("nodes", "pointer", "code"),
    [
        ({"d": {"op": "distinct", "input": "in"}}, "nodes/d/window", "missing_key"),
        ({"d": distinct("in", {"kind": "tumbling", "size": "0s"})}, "nodes/d/window/size", "invalid_window"),
        ({"d": distinct("there", SECOND)}, "nodes/d/input", "unknown_node"),
        ({"a": distinct("in", SECOND), "d": distinct("a", SECOND)}, "nodes/d", "duplicate_column"),
        (
            {
                "u": {"op": "union", "inputs": ["in", "in"]},
                "d": distinct("u", {"kind": "tumbling", "size": 3}),
            },
            "nodes/d/window",
            "order_required",
        ),
        (
            {
                "p": {"op": "project", "input": "in", "compute": {"room": "room"}},
                "a": distinct("p", SECOND),
                "d": {
                    "op": "aggregate",
                    "input": "a",
                    "window": {"kind": "tumbling", "size": "1m"},
                    "compute": {"n": "count(*)"},
                    "scaled": True,
                },
            },
            "nodes/d/scaled",
            "not_scalable",
        ),
    ],
    ids=["no window", "empty window", "unknown input", "window columns", "order", "scaled above"],
)
def test_errors_have_a_pointer(nodes: dict[str, Any], pointer: str, code: str) -> None:
    assert (pointer, code) in {(item.pointer, item.code) for item in problems({**IN, **nodes}, "d")}


# Rewriting

SAMPLE = {
    **IN,
    "p": {"op": "project", "input": "in", "compute": {"room": "room", "t": "temperature", "h": "humidity"}},
}


def above(where: str, window: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**SAMPLE, "d": distinct("p", window or SECOND), "s": select("d", where)}


def test_a_select_is_moved_below() -> None:
    root, nodes = step_of(select_below_node.RULE, above("t > 30"), "s")
    assert (root, nodes["d"]["input"], nodes["s"]) == ("d", "s", select("p", "t > 30"))


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("window_start > TIMESTAMP '2020-01-01 00:00:00'", {}),
        ("t > 30", {"one_time": True}),
        ("sqrt(t) > 3", {"on_error": OnError.FAIL}),
        ("t > 0 AND CAST(h AS string) <> '0.0'", {}),
    ],
    ids=["window", "one-time", "may fail", "tells zeros apart"],
)
def test_a_select_stays_above_where_that_would_change_answers(where: str, options: dict[str, Any]) -> None:
    assert steps_of(select_below_node.RULE, above(where), "s", **options) == []


def test_a_select_stays_above_windows_by_rows() -> None:
    assert steps_of(select_below_node.RULE, above("t > 30", {"kind": "tumbling", "size": 5}), "s") == []


def test_compared_columns_are_not_dropped() -> None:
    nodes = {**above("t > 30"), "q": {"op": "project", "input": "s", "compute": {"room": "room"}}}
    nodes["d"]["input"] = "wide"
    nodes["wide"] = {
        "op": "project",
        "input": "p",
        "compute": {"room": "room", "t": "t", "h": "h", "more": "t * 2"},
    }
    assert steps_of(drop_columns.RULE, nodes, "q") == []


def test_metrics_apply_after_the_select_was_moved_below() -> None:
    measured = {
        "d": Statistics(cost_per_tuple=500.0, selectivity=0.2, tuples=1000),
        "s": Statistics(cost_per_tuple=80.0, selectivity=0.05, tuples=1000),
    }
    plan = infer(plan_of(above("t > 30"), "s"), STREAMS)
    model = CostModel(plan, PlanMetrics({"readings": 1000.0}, measured))
    assert model.assess(plan).works["d"] == pytest.approx(500_000)
    other = infer(plan_of({**SAMPLE, "s": select("p", "t > 30"), "d": distinct("s", SECOND)}, "d"), STREAMS)
    assert model.assess(other).works["d"] == pytest.approx(25_000)


# Sharing and migration


def test_queries_share_distinct(stream: MakeStream, clock: ManualClock) -> None:
    bench = Bench(stream("readings", "ts timestamp, x int", event_time="ts"), clock)

    def plan(keep: str) -> dict[str, Any]:
        return {
            **READINGS,
            "p": {"op": "project", "input": "in", "compute": {"y": "x // 100"}},
            "d": distinct("p", SECOND),
            "out": select("d", keep),
        }

    runs = [bench.start("a", plan("y > 1")), bench.start("b", plan("y < 99"))]
    bench.feed(0, 150, 160, 500, 501)
    assert shares(*runs)
    bench.feed(900, 1000, 2000)
    assert {type(operator).__name__ for operator in bench.pipeline().network.operators.values()} >= {
        "Aggregate"
    }
    assert [y for y, *_ in runs[0].answers()] == [5, 9, 10]
    assert [y for y, *_ in runs[1].answers()] == [0, 1, 5, 9, 10]


@pytest.mark.parametrize("window", [{"kind": "tumbling", "size": 3}, {**SECOND, "partial": True}])
def test_windows_that_begin_with_the_query_are_not_shared(window: dict[str, Any]) -> None:
    node = infer(plan_of({**IN, "d": distinct("in", window)}, "d"), STREAMS).nodes["d"]
    assert not node.shareable(in_order=False)
    assert isinstance(node, TypedDistinct)


def test_distinct_is_reused_when_selects_below_it_are_reordered(stream: MakeStream) -> None:
    readings = readings_of(stream)
    window = {"kind": "tumbling", "size": "10s"}
    run = run_plan({**EVEN_THEN_SMALL, "d": distinct("small", window)}, "d", [readings])
    readings.rows(*rows(0, 8))
    run.engine.run()
    held = run.query.network.operators["d"]
    run.engine.migrate("q", typed({**SMALL_THEN_EVEN, "d": distinct("even", window)}, "d", readings))
    readings.rows(*rows(8, 3))
    assert [x for _, _, x, *_ in run.rows()] == [0, 2, 4, 6, 8]
    assert run.query.network.operators["d"] is held


def test_moving_a_select_below_while_it_runs_changes_no_answer(stream: MakeStream) -> None:
    readings = readings_of(stream)
    window = {"kind": "hopping", "size": "10s", "hop": "5s"}
    homes = {**READINGS, "p": {"op": "project", "input": "in", "compute": {"home": "home", "y": "x // 4"}}}
    late = {**homes, "d": distinct("p", window), "s": select("d", "y % 2 = 0")}
    soon = {**homes, "s": select("p", "y % 2 = 0"), "d": distinct("s", window)}
    run = run_plan(late, "s", [readings])
    plain = run_plan(late, "s", [readings], engine=run.engine, id_="plain")
    readings.rows(*rows(0, 7))
    run.engine.run()
    run.engine.migrate("q", typed(soon, "d", readings))
    for start in range(7, 60, 3):
        readings.rows(*rows(start, 3))
        run.engine.run()
    assert run.query.migrations.count == 1
    readings.complete()
    assert run.rows() == plain.rows() != []
