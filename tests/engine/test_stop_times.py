"""`stop_at` is enforced by the clock, however busy the engine is and however long a query had no rows."""

from __future__ import annotations

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.states import IllegalMove, QueryState
from mavstream_server.engine.stop_times import StopTimePassed
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

SECOND = 1_000_000


def passing(stream: str) -> dict[str, object]:
    """A plan that passes every row of a stream."""
    return {
        "in": {"op": "source", "stream": stream},
        "all": {"op": "select", "input": "in", "where": "n >= 0"},
    }


@pytest.fixture
def streams(stream: MakeStream) -> list[ScriptedStream]:
    return [stream("busy", "n int"), stream("quiet", "n int")]


def never_idle(streams: list[ScriptedStream], clock: ManualClock) -> PlanRun:
    """Start a query with more work than the test runs."""
    run = run_plan(passing("busy"), "all", streams, clock=clock, train=1, id_="load")
    streams[0].rows(*[(n,) for n in range(5000)], frame=500)
    return run


def stopping(load: PlanRun, streams: list[ScriptedStream], stop_at: int, id_: str = "stops") -> PlanRun:
    return run_plan(
        passing("quiet"), "all", streams, engine=load.engine, id_=id_, options=RunOptions(stop_at=stop_at)
    )


def step_until_ended(run: PlanRun, clock: ManualClock, most: int) -> None:
    """Step a busy engine until a query has ended; a step takes a millisecond."""
    for _ in range(most):
        if not run.query.active:
            return
        assert run.engine.step(), "the engine must be busy all the time"
        clock.advance(nanoseconds=1_000_000)
    raise AssertionError(f"still {run.query.state} after {most} steps")


def test_an_overdue_query_ends_while_the_engine_is_busy(
    streams: list[ScriptedStream], clock: ManualClock
) -> None:
    load = never_idle(streams, clock)
    run = stopping(load, streams, clock.now() // 1000 + SECOND)
    streams[1].rows((1,), (2,))
    for _ in range(50):
        load.engine.step()
    assert run.query.state is QueryState.RUNNING
    clock.advance(seconds=3)
    step_until_ended(run, clock, 20)
    assert run.query.state is QueryState.FINISHED
    assert run.answers() == [(1,), (2,)]
    assert load.query.active


def test_rows_that_arrived_in_time_are_read_before_the_end(
    streams: list[ScriptedStream], clock: ManualClock
) -> None:
    load = never_idle(streams, clock)
    run = stopping(load, streams, clock.now() // 1000 + SECOND)
    for _ in range(10):
        load.engine.step()
    streams[1].rows((1,), (2,), (3,))
    clock.advance(seconds=3)  # the log was not read since
    step_until_ended(run, clock, 100)
    assert run.answers() == [(1,), (2,), (3,)]


def test_a_paused_query_ends_at_its_stop_time(streams: list[ScriptedStream], clock: ManualClock) -> None:
    load = never_idle(streams, clock)
    run = stopping(load, streams, clock.now() // 1000 + SECOND)
    load.engine.pause("stops")
    streams[1].rows((1,))
    clock.advance(seconds=3)
    step_until_ended(run, clock, 20)
    assert (run.query.state, run.answers()) == (QueryState.FINISHED, [])


def test_queries_end_in_the_order_of_their_times(streams: list[ScriptedStream], clock: ManualClock) -> None:
    load = never_idle(streams, clock)
    now = clock.now() // 1000
    runs = [stopping(load, streams, now + after * SECOND, f"q{after}") for after in (5, 1, 3)]
    load.engine.stop("q3")
    states = []
    for _ in range(7):
        clock.advance(seconds=1)
        for _ in range(20):
            load.engine.step()
        states.append([run.query.state.value for run in runs])
    assert states[0] == ["running", "running", "stopped"]
    assert states[1] == states[4] == ["running", "finished", "stopped"]
    assert states[5] == ["finished", "finished", "stopped"]


# Changed while the query runs


def feed_each_second(stream: ScriptedStream, clock: ManualClock, first: int, count: int) -> None:
    for n in range(first, first + count):
        stream.rows((n,))
        clock.advance(seconds=1)


@pytest.mark.parametrize(("seconds", "rows"), [(2, 2), (5, 5), (None, 8)])
def test_a_stop_time_can_be_changed_and_removed(
    streams: list[ScriptedStream], clock: ManualClock, seconds: int | None, rows: int
) -> None:
    start = clock.now() // 1000
    run = run_plan(
        passing("quiet"), "all", streams, clock=clock, options=RunOptions(stop_at=start + 3 * SECOND)
    )
    feed_each_second(streams[1], clock, 0, 1)
    run.engine.run()
    run.engine.changes.stop_at("q", None if seconds is None else start + seconds * SECOND)
    feed_each_second(streams[1], clock, 1, 7)
    assert run.rows() == [(n,) for n in range(rows)]
    assert run.query.state is (QueryState.RUNNING if seconds is None else QueryState.FINISHED)


def test_a_new_stop_time_replaces_the_old_one(streams: list[ScriptedStream], clock: ManualClock) -> None:
    load = never_idle(streams, clock)
    start = clock.now() // 1000
    run = stopping(load, streams, start + SECOND)
    load.engine.changes.stop_at("stops", start + 10 * SECOND)
    clock.advance(seconds=5)
    for _ in range(50):
        load.engine.step()
    assert run.query.state is QueryState.RUNNING
    clock.advance(seconds=7)
    step_until_ended(run, clock, 20)
    assert run.query.state is QueryState.FINISHED


def test_a_stop_time_before_rows_that_were_read_is_refused(
    streams: list[ScriptedStream], clock: ManualClock
) -> None:
    start = clock.now() // 1000
    run = run_plan(passing("quiet"), "all", streams, clock=clock)
    feed_each_second(streams[1], clock, 0, 3)
    run.engine.run()
    with pytest.raises(StopTimePassed, match="query 'q' has read stream 'quiet' up to what arrived at"):
        run.engine.changes.stop_at("q", start + SECOND)
    feed_each_second(streams[1], clock, 3, 2)
    assert run.rows() == [(n,) for n in range(5)]
    run.engine.stop("q")
    with pytest.raises(IllegalMove, match="cannot change its stop_at any more"):
        run.engine.changes.stop_at("q", None)


def test_a_member_of_a_shared_pipeline_stops_at_its_own_stop_time(
    streams: list[ScriptedStream], clock: ManualClock
) -> None:
    one = run_plan(passing("quiet"), "all", streams, clock=clock, id_="one")
    other = run_plan(passing("quiet"), "all", streams, engine=one.engine, id_="other")
    feed_each_second(streams[1], clock, 0, 2)
    one.engine.run()
    clock.advance(seconds=2)
    feed_each_second(streams[1], clock, 2, 1)
    one.engine.run()
    assert one.query.shared
    one.engine.changes.stop_at("one", clock.now() // 1000 + 2 * SECOND)
    assert not one.query.shared
    feed_each_second(streams[1], clock, 3, 5)
    assert one.rows() == [(n,) for n in range(5)]
    assert other.rows() == [(n,) for n in range(8)]
    assert (one.query.state, other.query.state) == (QueryState.FINISHED, QueryState.RUNNING)


def test_a_query_shares_again_when_its_stop_time_is_removed(
    streams: list[ScriptedStream], clock: ManualClock
) -> None:
    stop = clock.now() // 1000 + 100 * SECOND
    one = run_plan(passing("quiet"), "all", streams, clock=clock, id_="one", options=RunOptions(stop_at=stop))
    other = run_plan(passing("quiet"), "all", streams, engine=one.engine, id_="other")
    for n in range(4):
        feed_each_second(streams[1], clock, 2 * n, 2)
        one.engine.run()
        assert bool(one.query.shared) is (n > 1)
        if n == 1:
            one.engine.changes.stop_at("one", None)
            one.engine.run()
            clock.advance(seconds=2)
    assert one.answers() == other.answers() == [(n,) for n in range(8)]
