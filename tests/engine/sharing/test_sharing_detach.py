"""Members detach from a shared pipeline: when they lag, stop, fail, are saved, or shed rows."""

from __future__ import annotations

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import SECOND, SOURCE, US, Bench, counts, hot, readings_of, shares

from mavstream_protocol.queries import OnError
from mavstream_server.engine.states import QueryState
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, PlanRun

PATIENCE = 5_000_000


@pytest.fixture
def bench(stream: MakeStream, clock: ManualClock) -> Bench:
    return Bench(readings_of(stream), clock)


def crowded(bench: Bench) -> tuple[PlanRun, PlanRun, PlanRun]:
    """Return members of a shared pipeline, the first of which has no room for the newest rows."""
    slow = bench.start("slow", hot(), queue_limit=3)
    runs = slow, bench.start("b", hot()), bench.start("c", hot())
    bench.feed(1, 10)
    assert shares(*runs)
    bench.readings.rows(*[(value, value) for value in range(100, 200)], frame=4)
    while slow.query.network.account.rows < 3:
        assert bench.engine.step()
    return runs


def test_a_member_without_room_detaches_and_the_others_continue(bench: Bench) -> None:
    slow, *others = crowded(bench)
    bench.clock.advance(nanoseconds=PATIENCE)
    bench.engine.step()
    assert not shares(slow)
    assert shares(*others)
    assert slow.query.rows_in < 102
    bench.engine.run()
    bench.clock.advance(seconds=0.5)
    bench.engine.run()
    assert not shares(slow), "it attached again at once"
    assert [run.answers()[-100:] for run in (slow, *others)] == [[(x + 1,) for x in range(100, 200)]] * 3
    assert slow.query.rows_in == 102


def test_a_member_that_has_room_soon_stays_attached_and_the_source_waits_meanwhile(bench: Bench) -> None:
    slow, *others = crowded(bench)
    (source,) = bench.pipeline().sources.values()
    assert not source.has_room
    bench.engine.run()
    assert shares(slow, *others)
    assert source.has_room
    assert [run.answers()[-100:] for run in (slow, *others)] == [[(x + 1,) for x in range(100, 200)]] * 3


def test_no_member_holds_more_rows_than_its_limit_and_those_in_flight(bench: Bench) -> None:
    slow, *_ = crowded(bench)
    bench.readings.rows(*[(value, value) for value in range(200, 1000)], frame=4)
    most = 0
    while bench.engine.step():
        most = max(most, slow.query.network.account.rows)
    assert most <= 3 + 2 * 8


def test_the_last_member_runs_alone(bench: Bench) -> None:
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    bench.feed(1, 10)
    assert bench.engine.intake.needed() == {"readings": (2, "a", 2)}
    bench.engine.stop("a")
    bench.engine.pause("b")
    bench.feed(11)
    assert not bench.pipelines
    assert list(bench.engine.policy_host.admitted) == ["b", "c"]
    assert bench.engine.intake.needed() == {"readings": (3, "c", 3)}
    bench.engine.resume("b")
    bench.feed(12)
    assert shares(*runs[1:])
    assert [run.answers() for run in runs] == [[(11,)], [(11,), (13,)], [(11,), (12,), (13,)]]
    assert [run.query.rows_in for run in runs] == [2, 3, 4]


def test_a_stream_is_released_with_its_last_query(bench: Bench) -> None:
    for id_ in "ab":
        bench.start(id_, hot())
    bench.feed(1, 10)
    for id_ in "ab":
        bench.engine.stop(id_)
    assert bench.engine.intake.needed() == {}
    bench.engine.detach("readings")
    assert not bench.engine.policy_host.admitted


def test_members_fail_as_they_would_alone(bench: Bench) -> None:
    fail = RunOptions(OnError.FAIL)
    runs = [
        bench.start("a", hot("CAST(9223372036854775807 + x AS int) > 0"), options=fail),
        bench.start("b", hot("CAST(9223372036854775807 + x AS int) > 0", node="warm"), options=fail),
        bench.start("c", hot()),
    ]
    bench.feed(0)
    assert shares(*runs[:2])
    bench.feed(10)
    assert [run.query.state for run in runs] == [QueryState.FAILED, QueryState.FAILED, QueryState.RUNNING]
    assert bench.ended == ["a", "b"]
    for run, node in zip(runs, ("'hot'", "'warm'"), strict=False):
        assert run.query.reason is not None
        assert f"operator {node} met a row that cannot be computed" in run.query.reason
    assert runs[2].answers() == [(11,)]
    assert list(bench.engine.policy_host.admitted) == ["c"]


def test_a_complete_stream_ends_all_members(bench: Bench) -> None:
    runs = [bench.start(id_, counts()) for id_ in "abc"]
    bench.feed(0, 500)
    assert shares(*runs)
    bench.readings.complete()
    bench.engine.run()
    assert [run.query.state for run in runs] == [QueryState.FINISHED] * 3
    assert [run.answers() for run in runs] == [[(2, 0, US)]] * 3
    assert not bench.engine.policy_host.admitted
    assert [run.query.rows_in for run in runs] == [2] * 3


def test_memory_held_for_a_member_counts_towards_its_limit(bench: Bench) -> None:
    grouped = {
        "in": SOURCE,
        "n": {"op": "aggregate", "input": "in", "by": ["x"], "window": SECOND, "compute": {"n": "count(*)"}},
        "out": {"op": "select", "input": "n", "where": "n > 0"},
    }
    runs = [bench.start("a", grouped), bench.start("b", grouped, memory_limit=200_000)]
    bench.feed(0, 1)
    assert shares(*runs)
    held = bench.pipeline().memory.state
    assert held > 0
    assert [run.query.memory.state for run in runs] == [held] * 2
    bench.readings.rows(*[(2, x) for x in range(20_000)], frame=500)
    bench.engine.run()
    assert [run.query.state for run in runs] == [QueryState.RUNNING, QueryState.FAILED]
    assert runs[1].query.reason is not None
    assert "more than its limit of 200000" in runs[1].query.reason
    bench.feed(1000)
    assert len(runs[0].answers()) == 20_000
    assert not bench.pipelines


def test_a_snapshot_of_a_member_continues_in_another_engine(bench: Bench) -> None:
    runs = [bench.start("a", counts()), bench.start("b", counts())]
    bench.feed(0, 500)
    assert shares(*runs)
    bench.readings.rows((600_000, 600), (1_200_000, 1200), (2_100_000, 2100))
    for _ in range(2):
        bench.engine.step()
    saved, before = bench.engine.snapshot("a"), runs[0].answers()
    again = Bench(bench.readings, bench.clock).start("a", counts(), saved=saved)
    bench.engine.run()
    assert before + again.rows() == runs[0].answers() == runs[1].answers() == [(3, 0, US), (1, US, 2 * US)]


def test_a_query_that_sheds_rows_does_not_share(bench: Bench) -> None:
    bench.start("a", counts())
    bench.engine.changes.shed("a", 0.5)
    bench.start("b", counts())
    bench.feed(*range(20))
    assert not bench.pipelines
    bench.engine.changes.shed("a", 0)
    bench.feed(20)
    assert not bench.pipelines, "rows may be missing in its windows"


def test_shedding_intervals_of_a_query_are_reported_while_it_shares_and_afterwards(bench: Bench) -> None:
    shedding, other = bench.start("a", hot()), bench.start("b", hot())
    bench.feed(1)
    assert shares(shedding, other)
    bench.engine.changes.shed("a", 0.5)
    bench.feed(*range(20))
    assert not bench.pipelines
    bench.engine.changes.shed("a", 0)
    bench.feed(20)
    assert shares(shedding, other)
    intervals, counters = shedding.query.shedding_intervals, shedding.query.counters
    assert intervals
    assert counters["in"]["shed"] == sum(interval.shed for interval in intervals)
    bench.engine.sharing.keep_apart(shedding.query)
    bench.feed(21)
    assert (shedding.query.shedding_intervals, shedding.query.counters) == (intervals, counters)
    assert other.query.counters == {}
