"""Operators, one behaviour each, over small literal tables. Times are microseconds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.queries import OnError
from mavstream_server.engine.states import QueryState
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

MS = 1000
IN = {"in": {"op": "source", "stream": "readings"}}


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    """Rows (ts, home, temp) at 1, 2, ... ms."""
    return stream("readings", "ts timestamp, home int, temp int null", event_time="ts")


def aggregate(window: dict[str, Any], by: tuple[str, ...] = (), **compute: str) -> dict[str, Any]:
    node = {"op": "aggregate", "input": "in", "by": list(by), "window": window}
    return {**IN, "a": {**node, "compute": compute or {"n": "count(*)"}}}


def tumbling(size: Any, **rest: Any) -> dict[str, Any]:
    return {"kind": "tumbling", "size": size, **rest}


def hopping(size: Any, hop: Any, **rest: Any) -> dict[str, Any]:
    return {"kind": "hopping", "size": size, "hop": hop, **rest}


def test_select_passes_rows_whose_predicate_is_true(readings: ScriptedStream) -> None:
    readings.rows((1, 1, 10), (2, 1, None), (3, 1, 40))
    run = run_plan({**IN, "s": {"op": "select", "input": "in", "where": "temp > 20"}}, "s", [readings])
    assert run.rows() == [(3, 1, 40)]


def test_project_computes_columns_in_order(readings: ScriptedStream) -> None:
    readings.rows((1, 7, 10), (2, 8, None))
    nodes = {**IN, "p": {"op": "project", "input": "in", "compute": {"f": "temp * 1.8 + 32", "home": "home"}}}
    assert run_plan(nodes, "p", [readings]).rows() == [(50.0, 7), (None, 8)]


def test_split_sends_a_row_to_the_first_match_and_counts_the_rest(readings: ScriptedStream) -> None:
    readings.rows((1, 1, 35), (2, 1, 25), (3, 1, 5), (4, 1, None))
    split = {"op": "split", "input": "in", "outputs": {"hot": "temp > 30", "warm": "temp > 20"}}
    nodes = {**IN, "p": split, "u": {"op": "union", "inputs": ["p.warm", "p.hot"]}}
    run = run_plan(nodes, "u", [readings])
    assert sorted(run.rows()) == [(1, 1, 35), (2, 1, 25)]
    assert run.query.counters == {"p": {"unmatched": 2}}


def test_the_else_output_gets_rows_that_match_no_condition(readings: ScriptedStream) -> None:
    readings.rows((1, 1, 35), (2, 1, 25), (3, 1, None))
    split = {"op": "split", "input": "in", "outputs": {"hot": "temp > 30"}}
    nodes = {**IN, "p": split, "s": {"op": "select", "input": "p.else", "where": "TRUE"}}
    run = run_plan(nodes, "s", [readings])
    assert run.rows() == [(2, 1, 25), (3, 1, None)]
    assert run.query.counters == {"p": {"unread": 1}}


def test_a_tumbling_window_is_half_open_and_closes_when_the_watermark_passes(
    readings: ScriptedStream,
) -> None:
    run = run_plan(aggregate(tumbling("10ms")), "a", [readings])
    readings.rows((0, 1, 1), (9_999, 1, 1))
    assert run.rows() == []
    readings.rows((10_000, 1, 1))
    assert run.rows() == [(2, 0, 10_000)]


def test_windows_without_rows_are_not_answered(readings: ScriptedStream) -> None:
    readings.rows((0, 1, 1), (55 * MS, 1, 1))
    readings.complete()
    assert run_plan(aggregate(tumbling("10ms")), "a", [readings]).rows() == [
        (1, 0, 10_000),
        (1, 50_000, 60_000),
    ]


def test_groups_are_emitted_in_the_order_of_their_first_rows(readings: ScriptedStream) -> None:
    readings.rows((1, 9, 1), (2, 3, 2), (3, 9, 3), (4, 5, None))
    readings.complete()
    nodes = aggregate(tumbling("10ms"), ("home",), n="count(*)", t="sum(temp)")
    assert [row[:3] for row in run_plan(nodes, "a", [readings]).rows()] == [
        (9, 2, 4),
        (3, 1, 2),
        (5, 1, None),
    ]


def test_a_late_row_is_counted_and_excluded(readings: ScriptedStream) -> None:
    run = run_plan(aggregate(tumbling("10ms")), "a", [readings])
    readings.rows((5 * MS, 1, 1), (12 * MS, 1, 1), (7 * MS, 1, 1), (20 * MS, 1, 1))
    assert run.rows() == [(1, 0, 10_000), (1, 10_000, 20_000)]
    assert run.query.counters == {"a": {"late": 1}}


def test_lateness_keeps_windows_open_for_delayed_rows(stream: MakeStream) -> None:
    readings = stream("readings", "ts timestamp, home int", event_time="ts", lateness=5 * MS)
    run = run_plan(aggregate(tumbling("10ms")), "a", [readings])
    readings.rows((5 * MS, 1), (12 * MS, 1), (7 * MS, 1), (15 * MS, 1))
    assert run.rows() == [(2, 0, 10_000)]


def test_a_row_late_for_one_hopping_window_still_counts_for_the_next(readings: ScriptedStream) -> None:
    run = run_plan(aggregate(hopping("10ms", "5ms")), "a", [readings])
    # The watermark 11 ms has closed [0, 10) ms; the row at 6 ms belongs to it and to [5, 15) ms.
    readings.rows((1 * MS, 1, 1), (11 * MS, 1, 1), (6 * MS, 1, 1), (30 * MS, 1, 1))
    assert run.rows() == [
        (1, -5_000, 5_000),
        (1, 0, 10_000),
        (2, 5_000, 15_000),
        (1, 10_000, 20_000),
    ]
    assert run.query.counters == {}


def test_begin_and_until_bound_the_windows_and_end_the_query(readings: ScriptedStream) -> None:
    window = tumbling("10ms", begin=5 * MS, until=22 * MS)
    run = run_plan(aggregate(window), "a", [readings])
    readings.rows((1 * MS, 1, 1), (6 * MS, 1, 1), (16 * MS, 1, 1), (21 * MS, 1, 1), (40 * MS, 1, 1))
    assert run.rows() == [(1, 5_000, 15_000), (2, 15_000, 22_000)]
    assert run.query.state is QueryState.FINISHED


def test_rows_between_disjoint_windows_belong_to_none(readings: ScriptedStream) -> None:
    readings.rows((1 * MS, 1, 1), (4 * MS, 1, 1), (11 * MS, 1, 1))
    readings.complete()
    nodes = aggregate(hopping("3ms", "10ms"))
    assert run_plan(nodes, "a", [readings]).rows() == [(1, 0, 3_000), (1, 10_000, 13_000)]


def test_windows_by_rows_close_when_they_are_full(readings: ScriptedStream) -> None:
    readings.rows(*[(i, 1, i) for i in range(7)])
    readings.complete()
    nodes = aggregate(tumbling(3), s="sum(temp)", first="first(temp)", last="last(temp)")
    assert run_plan(nodes, "a", [readings]).rows() == [(3, 0, 2, 0, 3), (12, 3, 5, 3, 6)]


def test_hopping_windows_by_rows_share_rows(readings: ScriptedStream) -> None:
    readings.rows(*[(i, 1, i) for i in range(6)])
    nodes = aggregate(hopping(4, 1), s="sum(temp)")
    assert [row[0] for row in run_plan(nodes, "a", [readings]).rows()] == [6, 10, 14]


def test_arrival_time_windows_close_with_clock_marks(stream: MakeStream, clock: ManualClock) -> None:
    plain = stream("readings", "home int")
    run = run_plan(aggregate(tumbling("1s")), "a", [plain], clock=clock)
    plain.rows((1,), (2,))
    assert run.rows() == []
    clock.advance(seconds=2)
    plain.mark(FrameKind.CLOCK)
    assert [row[0] for row in run.rows()] == [2]


def test_an_interval_join_pairs_rows_within_its_interval(stream: MakeStream) -> None:
    left = stream("l", "ts timestamp, k int null, a string", event_time="ts")
    right = stream("r", "ts timestamp, k int null, b string", event_time="ts")
    join = {
        "op": "join",
        "left": "l",
        "right": "r",
        "on": [["k", "k"]],
        "within": {"before": "1ms", "after": "2ms"},
    }
    nodes = {
        "l": {"op": "source", "stream": "l"},
        "r": {"op": "source", "stream": "r"},
        "j": {**join, "compute": {"a": "l.a", "b": "r.b"}},
    }
    left.rows((10 * MS, 1, "x"), (10 * MS, None, "null"))
    right.rows(
        (8_999, 1, "early"),
        (9_000, 1, "first"),
        (12_000, 1, "last"),
        (12_001, 1, "late"),
        (10 * MS, None, "null"),
    )
    right.rows((10 * MS, 2, "other key"))
    assert sorted(run_plan(nodes, "j", [left, right]).rows()) == [("x", "first"), ("x", "last")]


def test_join_state_is_removed_when_the_watermarks_have_passed(stream: MakeStream) -> None:
    left = stream("l", "ts timestamp, k int", event_time="ts")
    right = stream("r", "ts timestamp, k int", event_time="ts")
    nodes = {
        "l": {"op": "source", "stream": "l"},
        "r": {"op": "source", "stream": "r"},
        "j": {
            "op": "join",
            "left": "l",
            "right": "r",
            "on": [["k", "k"]],
            "within": "5ms",
            "compute": {"k": "l.k"},
        },
    }
    run = run_plan(nodes, "j", [left, right])
    sizes = []
    for second in range(20):
        for each in (left, right):
            each.rows(*[(second * 1000 * MS + i * MS, i) for i in range(1000)])
        run.engine.run()
        sizes.append(run.query.memory.state)
    assert len(run.answers()) == 20 * 1000
    assert max(sizes[5:]) <= 2 * sizes[0]


def test_except_keeps_duplicates_and_equates_nulls(stream: MakeStream) -> None:
    fields = "ts timestamp, k int null"
    left, right = (stream(name, fields, event_time="ts") for name in "lr")
    project = {"op": "project", "compute": {"k": "k"}}
    nodes = {
        "ls": {"op": "source", "stream": "l"},
        "rs": {"op": "source", "stream": "r"},
        "l": {**project, "input": "ls"},
        "r": {**project, "input": "rs"},
        "e": {"op": "except", "left": "l", "right": "r", "window": tumbling("10ms")},
    }
    left.rows((1, 1), (2, 1), (3, 2), (4, None), (11 * MS, None))
    right.rows((5, 2), (6, None), (12 * MS, 1))
    left.complete()
    right.complete()
    rows = run_plan(nodes, "e", [left, right]).rows()
    assert rows == [(1, 0, 10_000), (1, 0, 10_000), (None, 10_000, 20_000)]


def test_an_ordered_union_merges_by_time_input_and_position(stream: MakeStream) -> None:
    streams = [stream(name, "ts timestamp, v string", event_time="ts") for name in "xy"]
    nodes = {
        "x": {"op": "source", "stream": "x"},
        "y": {"op": "source", "stream": "y"},
        "u": {"op": "union", "inputs": ["x", "y"], "order": "time"},
    }
    streams[1].rows((1, "y1"), (2, "y2"), (2, "y3"))
    streams[0].rows((2, "x1"), (3, "x2"))
    run = run_plan(nodes, "u", streams)
    assert [v for _, v in run.rows()] == ["y1"]  # more rows with time 2 may still arrive from y
    streams[1].rows((4, "y4"))
    assert [v for _, v in run.rows()] == ["y1", "x1", "y2", "y3"]


@pytest.mark.parametrize(
    ("on_error", "expected"), [(OnError.NULL, [(2.0,), (None,), (3.0,)]), (OnError.SKIP, [(2.0,), (3.0,)])]
)
def test_rows_that_fail_become_null_or_are_skipped(
    stream: MakeStream, on_error: OnError, expected: list[Any]
) -> None:
    numbers = stream("readings", "x int")
    numbers.rows((4,), (-1,), (9,))
    nodes = {**IN, "p": {"op": "project", "input": "in", "compute": {"r": "sqrt(x)"}}}
    run = run_plan(nodes, "p", [numbers], options=RunOptions(on_error=on_error))
    assert run.rows() == expected
    assert run.query.counters == {"p": {"errors": 1}}


def test_a_query_with_on_error_fail_fails_and_others_continue(stream: MakeStream) -> None:
    numbers = stream("readings", "x int")
    nodes = {**IN, "p": {"op": "project", "input": "in", "compute": {"r": "sqrt(x)"}}}
    failing = run_plan(nodes, "p", [numbers], options=RunOptions(on_error=OnError.FAIL), id_="failing")
    other = run_plan(nodes, "p", [numbers], engine=failing.engine, id_="other")
    numbers.rows((4,), (-1,))
    assert other.rows() == [(2.0,), (None,)]
    assert failing.query.state is QueryState.FAILED
    assert failing.query.reason is not None
    assert "operator 'p' met a row that cannot be computed" in failing.query.reason
    assert failing.query.memory.resident == 0


def test_a_sum_beyond_64_bits_fails_the_query_by_name(stream: MakeStream) -> None:
    numbers = stream("readings", "ts timestamp, x int", event_time="ts")
    numbers.rows((1, 1 << 62), (2, 1 << 62), (3, -(1 << 62)))
    run = run_plan(aggregate(tumbling("1s"), s="sum(x)"), "a", [numbers])
    numbers.rows((1_000_000, 1))
    assert run.rows() == [(1 << 62, 0, 1_000_000)]
    numbers.rows((2_000_000, 1 << 62), (2_000_001, 1 << 62), (3_000_001, 1))
    run.engine.run()
    assert run.query.state is QueryState.FAILED
    assert "does not fit into 64 bits" in (run.query.reason or "")


@pytest.mark.parametrize("train", [1, 4096])
def test_no_mark_makes_rows_late_in_arrival_time(stream: MakeStream, clock: ManualClock, train: int) -> None:
    plain = stream("readings", "home int")
    plain.rows((1,))
    plain.mark(FrameKind.WATERMARK, watermark=clock.now() // 1000 + 100 * MS)
    plain.rows((2,))
    clock.advance(seconds=0.001)
    plain.rows((3,))
    plain.complete()
    run = run_plan(aggregate(tumbling("10ms")), "a", [plain], train=train)
    assert [row[0] for row in run.rows()] == [3]


def test_windows_with_a_small_common_divisor_skip_empty_panes(stream: MakeStream) -> None:
    left = stream("l", "ts timestamp, k int", event_time="ts")
    left.rows(*[(second * 1_000_000, second) for second in range(50)])
    left.complete()
    nodes = {
        "l": {"op": "source", "stream": "l"},
        "none": {"op": "select", "input": "l", "where": "k < 0"},
        "e": {
            "op": "except",
            "left": "l",
            "right": "none",
            "window": {"kind": "hopping", "size": "100s", "hop": "33333333us"},
        },
    }
    # A hundred million panes per window: this would not end if they were visited one by one.
    assert len(run_plan(nodes, "e", [left]).rows()) == 50 * 3 + 1  # the first row is in a fourth window
