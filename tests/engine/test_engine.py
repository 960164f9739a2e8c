"""The engine: queries start, pause, change and stop while tuples are in flight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.engine.errors import UnknownObject
from mavstream_server.engine.states import IllegalMove, OperatorState, QueryState
from mavstream_server.log import LogOptions, Retention
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

MS = 1000
IN = {"in": {"op": "source", "stream": "readings"}}
HOT = {**IN, "hot": {"op": "select", "input": "in", "where": "temp > 20"}}
COUNT = {
    **IN,
    "a": {
        "op": "aggregate",
        "input": "in",
        "window": {"kind": "tumbling", "size": "10ms"},
        "compute": {"n": "count(*)"},
    },
}


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, temp int", event_time="ts")


def at(*milliseconds: int) -> list[tuple[int, int]]:
    return [(ms * MS, 30) for ms in milliseconds]


def test_a_query_reads_from_the_position_at_its_start(readings: ScriptedStream) -> None:
    readings.rows((1, 30))
    run = run_plan(HOT, "hot", [readings], earliest=False)
    readings.rows((2, 40))
    assert run.rows() == [(2, 40)]


def test_windows_that_began_before_the_query_are_skipped(readings: ScriptedStream) -> None:
    readings.rows(*at(3, 12))
    run = run_plan(COUNT, "a", [readings], earliest=False)
    readings.rows(*at(13, 14, 21, 33))
    assert run.rows() == [
        (1, 20_000, 30_000)
    ]  # the row at 12 ms was not read: [10, 20) ms would be incomplete


def test_partial_windows_are_answered_when_asked_for(readings: ScriptedStream) -> None:
    readings.rows(*at(3, 12))
    window = {"kind": "tumbling", "size": "10ms", "partial": True}
    run = run_plan({**IN, "a": {**COUNT["a"], "window": window}}, "a", [readings], earliest=False)
    readings.rows(*at(13, 14, 21, 33))
    assert run.rows() == [(2, 10_000, 20_000), (1, 20_000, 30_000)]


def test_nothing_is_skipped_at_the_beginning_of_a_stream(readings: ScriptedStream) -> None:
    run = run_plan(COUNT, "a", [readings], earliest=False)
    readings.rows(*at(13, 14, 21))
    assert run.rows() == [(2, 10_000, 20_000)]


def test_windows_above_a_join_are_skipped_where_pairs_may_be_missing(stream: MakeStream) -> None:
    left, right = (stream(name, "ts timestamp, k int", event_time="ts") for name in "lr")
    nodes = {
        "l": {"op": "source", "stream": "l"},
        "r": {"op": "source", "stream": "r"},
        "j": {"op": "join", "left": "l", "right": "r", "within": "5ms", "compute": {"k": "l.k"}},
        "a": {**COUNT["a"], "input": "j"},
    }
    left.rows((8 * MS, 1))
    run = run_plan(nodes, "a", [left, right], earliest=False)
    # The row at 8 ms could have joined rows up to 13 ms: [0, 10) and [10, 20) ms are incomplete.
    left.rows((16 * MS, 1), (24 * MS, 1), (40 * MS, 1))
    right.rows((16 * MS, 1), (24 * MS, 1), (40 * MS, 1))
    assert run.rows() == [(1, 20_000, 30_000)]


def test_rows_of_a_pause_are_not_read_and_its_windows_are_dropped(readings: ScriptedStream) -> None:
    run = run_plan(COUNT, "a", [readings])
    readings.rows(*at(1, 2, 11))
    assert run.rows() == [(2, 0, 10_000)]
    run.engine.pause("q")
    readings.rows(*at(12, 22))
    assert run.rows() == [(2, 0, 10_000)]
    run.engine.resume("q")
    readings.rows(*at(23, 31, 32, 41))
    assert run.rows() == [(2, 0, 10_000), (2, 30_000, 40_000)]
    assert run.query.counters["a"]["skipped_windows"] == 1


def test_a_paused_query_has_no_backlog(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    run.engine.pause("q")
    readings.rows(*at(1, 2, 3))
    run.engine.run()
    assert run.query.memory.backlog == 0


def test_start_and_stop_are_arrival_times(readings: ScriptedStream, clock: ManualClock) -> None:
    start = clock.now() // 1000 + 1_000_000
    options = RunOptions(start_at=start, stop_at=start + 2_000_000)
    run = run_plan(HOT, "hot", [readings], clock=clock, options=options)
    for second in range(5):
        readings.rows((second, 30 + second))
        clock.advance(seconds=1)
    assert [temp for _, temp in run.rows()] == [31, 32]
    assert run.query.state is QueryState.FINISHED


def test_a_query_ends_at_its_stop_time_without_further_rows(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    stop = clock.now() // 1000 + 1_000_000
    run = run_plan(HOT, "hot", [readings], clock=clock, options=RunOptions(stop_at=stop))
    run.engine.run()
    clock.advance(seconds=3)
    run.engine.run()
    assert run.query.state is QueryState.FINISHED


def test_open_windows_are_not_answered_at_stop_at(readings: ScriptedStream, clock: ManualClock) -> None:
    stop = clock.now() // 1000 + 1_000_000
    run = run_plan(COUNT, "a", [readings], clock=clock, options=RunOptions(stop_at=stop))
    readings.rows(*at(1, 2))
    clock.advance(seconds=2)
    readings.rows(*at(30))
    assert run.rows() == []
    assert run.query.state is QueryState.FINISHED


def test_a_one_time_query_ends_with_its_first_window(readings: ScriptedStream) -> None:
    readings.rows(*at(1, 2, 13, 24, 35))
    run = run_plan(COUNT, "a", [readings], options=RunOptions(one_time=True))
    assert run.rows() == [(2, 0, 10_000)]
    assert run.query.state is QueryState.FINISHED


def test_a_query_over_completed_streams_finishes(readings: ScriptedStream) -> None:
    readings.rows(*at(1))
    run = run_plan(HOT, "hot", [readings])
    run.engine.run()
    assert run.query.state is QueryState.RUNNING
    readings.complete()
    run.engine.run()
    assert run.query.state is QueryState.FINISHED


@pytest.mark.parametrize("nodes", [HOT, COUNT])
def test_a_stopped_query_holds_no_memory(readings: ScriptedStream, nodes: dict[str, Any]) -> None:
    run = run_plan(nodes, list(nodes)[-1], [readings], train=2)
    readings.rows(*at(*range(1, 50)))
    for _ in range(7):
        run.engine.step()
    assert run.query.memory.resident > 0
    run.engine.stop("q")
    assert run.query.memory == (0, 0, 0)
    assert run.engine.run() == 0


def test_the_error_for_pausing_an_ended_query_says_why(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    run.engine.stop("q")
    with pytest.raises(IllegalMove, match="query 'q' is stopped and cannot become paused"):
        run.engine.pause("q")


def test_errors_for_unknown_objects_name_the_known_ones(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    with pytest.raises(UnknownObject, match="unknown query 'x'; this engine has: q"):
        run.engine.stop("x")
    with pytest.raises(UnknownObject, match="stream 'readings' is not attached"):
        run_plan(HOT, "hot", [readings], engine=Engine(ManualClock()))


def test_the_policy_can_be_switched_while_tuples_are_in_flight(readings: ScriptedStream) -> None:
    readings.rows(*at(*range(100)))
    run = run_plan(HOT, "hot", [readings], train=10)
    for name in ("wrr", "rr", "wrr"):
        for _ in range(3):
            run.engine.step()
        run.engine.switch(name)
    assert len(run.rows()) == 100


def test_a_query_can_change_class_while_tuples_are_in_flight(readings: ScriptedStream) -> None:
    readings.rows(*at(*range(100)))
    run = run_plan(HOT, "hot", [readings], train=10)
    run.engine.step()
    run.engine.set_class("urgent", 9)
    run.engine.changes.reclass("q", "urgent")
    assert run.query.class_name == "urgent"
    assert len(run.rows()) == 100


def test_operators_move_between_their_states(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    task = run.query.tasks["hot"]
    assert task.state is OperatorState.SUSPEND
    readings.rows(*at(1))
    run.engine.step()  # the source has emitted and the select has run: its output waits above
    assert task.state is OperatorState.SUSPEND
    assert run.query.tasks["#output"].state is OperatorState.READY
    run.engine.stop("q")
    assert task.state is OperatorState.STOP
    with pytest.raises(IllegalMove, match="operator 'hot' is stop and cannot become ready"):
        task.become(OperatorState.READY)


def test_a_leaf_does_not_read_while_its_query_is_over_its_queue_limit(readings: ScriptedStream) -> None:
    readings.rows(*at(*range(1000)), frame=10)
    run = run_plan(HOT, "hot", [readings], train=10, queue_limit=30, policy_options={"tuples": 1})
    most = 0
    while run.engine.step():
        most = max(most, run.query.network.account.rows)
    assert most <= 40  # a train may be added just below the limit
    assert len(run.answers()) == 1000


def test_a_query_over_its_memory_limit_fails_by_name(readings: ScriptedStream) -> None:
    nodes = {**IN, "a": {**COUNT["a"], "by": ["temp"], "window": {"kind": "tumbling", "size": "1h"}}}
    run = run_plan(nodes, "a", [readings], memory_limit=500_000)
    readings.rows(*[(i, i * 1000) for i in range(50_000)])
    run.engine.run()
    assert run.query.state is QueryState.FAILED
    assert "query 'q' holds" in (run.query.reason or "")


def test_statistics_are_published_every_200_tuples(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    readings.rows(*[(i, 10 + 20 * (i % 4 == 0)) for i in range(199)])
    run.engine.run()
    statistics = run.query.tasks["hot"].statistics
    assert statistics.tuples == 0
    readings.rows((1000, 30))
    run.engine.run()
    statistics = run.query.tasks["hot"].statistics
    assert statistics.tuples == 200
    assert statistics.selectivity == pytest.approx(0.255)


def test_latency_counts_from_the_row_or_mark_that_made_the_result_possible(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    run = run_plan(COUNT, "a", [readings], clock=clock)
    readings.rows(*at(1, 2))
    run.engine.run()
    clock.advance(seconds=60)
    readings.rows(*at(11))
    clock.advance(nanoseconds=5_000_000)
    run.engine.run()
    assert run.query.output.latency.maximum == 5_000_000


def test_a_lagging_query_reads_from_the_log_and_holds_no_other_back(readings: ScriptedStream) -> None:
    fast = run_plan(HOT, "hot", [readings], id_="fast")
    slow = run_plan(HOT, "hot", [readings], engine=fast.engine, id_="slow", queue_limit=1)
    readings.rows(*at(*range(20_000)), frame=100)
    run_until_fast_is_done = 0
    while len(fast.answers()) < 20_000:
        assert fast.engine.step()
        run_until_fast_is_done += 1
    assert fast.query.memory.backlog == 0
    assert fast.query.memory.resident == 0
    assert len(slow.rows()) == 20_000


def test_frames_are_decoded_once_however_many_queries_read_them(readings: ScriptedStream) -> None:
    first = run_plan(HOT, "hot", [readings], id_="q0")
    for number in range(1, 20):
        run_plan(HOT, "hot", [readings], engine=first.engine, id_=f"q{number}")
    readings.rows(*at(*range(1000)), frame=100)
    first.engine.run()
    assert readings.reader.decodes == 10


def test_rows_that_retention_removed_are_counted_as_missed(stream: MakeStream, clock: ManualClock) -> None:
    readings = stream(
        "readings", "ts timestamp, temp int", event_time="ts", options=LogOptions(segment_bytes=4096)
    )
    run = run_plan(COUNT, "a", [readings], train=10)
    readings.rows(*at(*range(10)))
    run.engine.run()
    readings.rows(*at(*range(10, 2000)), frame=10)
    removed = Retention(max_bytes=10_000).apply(readings.writer, None, clock.now(), force=True)
    assert removed.segments
    readings.complete()
    rows = run.rows()
    # Rows of the segment being read are still read; the others are counted as missed.
    assert run.query.counters["in"]["missed"] == removed.stop - 140
    # Answered windows are complete.
    assert {count for count, _, _ in rows} == {10}


def test_end_and_idle_marks_move_the_watermark(readings: ScriptedStream) -> None:
    run = run_plan(COUNT, "a", [readings])
    readings.rows(*at(1), producer=1)
    readings.rows(*at(25), producer=2)
    assert run.rows() == []  # producer 1 may still send rows of the first window
    readings.mark(FrameKind.IDLE, producer=1)
    assert run.rows() == [(1, 0, 10_000)]
    readings.mark(FrameKind.END, producer=2)
    readings.rows(*at(40), producer=1)
    assert run.rows() == [(1, 0, 10_000), (1, 20_000, 30_000)]


def test_a_row_that_cannot_be_read_is_left_out_and_counted(
    tmp_path: Path, stream: MakeStream, readings: ScriptedStream
) -> None:
    other = stream("other", "room string")
    nodes = {
        "in": {"op": "source", "stream": "other"},
        "hot": {"op": "select", "input": "in", "where": "room = 'hall'"},
    }
    good = run_plan(HOT, "hot", [readings, other], id_="good")
    bad = run_plan(nodes, "hot", [readings, other], engine=good.engine, id_="bad")
    readings.rows(*at(1))
    other.rows(("damaged",))
    for path in (tmp_path / "other").iterdir():
        data = path.read_bytes()
        index = data.find(b"damaged")
        if index >= 0:
            with path.open("r+b") as file:
                file.seek(index)
                file.write(b"\xff" * 7)
    assert len(good.rows()) == 1
    assert bad.query.state is QueryState.RUNNING
    assert bad.query.counters == {"in": {"damaged": 1}}
    assert good.query.counters == {}
    other.rows(("hall",))
    assert bad.rows() == [("hall",)]
