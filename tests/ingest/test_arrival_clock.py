"""Arrival times go on at about the real rate, however the wall clock is set."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.services.stream_store import NUMBERS, ScriptedReaders, Server, numbers, spec

from mavstream_server.ingest.arrival_clock import ArrivalClock
from mavstream_server.testing import ManualClock

SECOND = 1_000_000_000
DAY = 86_400


def run(clock: ManualClock, arrivals: ArrivalClock, seconds: float) -> int:
    """Let time pass; return by how much arrival time has advanced (ns), which must grow in every round."""
    begin = last = arrivals.now()
    for _ in range(round(seconds * 10)):
        clock.advance(seconds=0.1)
        arrivals.discipline()
        assert last < arrivals.now()
        last = arrivals.now()
    return last - begin


def test_without_steps_it_is_the_wall_clock(clock: ManualClock) -> None:
    arrivals = ArrivalClock(clock, SECOND)
    assert run(clock, arrivals, 10) == 10 * SECOND
    assert arrivals.now() == clock.now()
    assert arrivals.at(clock.monotonic() - 5) == clock.now() - 5


def test_a_day_ahead_and_back_moves_it_by_the_longest_step(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    arrivals = ArrivalClock(clock, 60 * SECOND)
    clock.step(seconds=DAY)
    assert run(clock, arrivals, 1) == pytest.approx(61.05 * SECOND)
    clock.step(seconds=-DAY)
    assert run(clock, arrivals, 10) == pytest.approx(9.5 * SECOND)
    assert arrivals.ahead == pytest.approx((60.05 - 0.5) * SECOND)
    run(clock, arrivals, 1300)
    assert arrivals.now() == clock.now()
    assert [record.__dict__["seconds"] for record in caplog.records] == [DAY, -DAY]
    assert [record.__dict__["followed_seconds"] for record in caplog.records] == [60, 0]


def test_a_small_step_ahead_is_followed_at_once_and_one_back_slowly(clock: ManualClock) -> None:
    arrivals = ArrivalClock(clock, 60 * SECOND)
    clock.step(seconds=5)
    run(clock, arrivals, 0.1)
    assert arrivals.now() == clock.now()
    clock.step(seconds=-1)
    assert run(clock, arrivals, 10) == pytest.approx(9.5 * SECOND)
    run(clock, arrivals, 11)
    assert arrivals.now() == clock.now()


def test_windows_go_on_after_the_clock_went_ahead_and_back_and_after_a_restart(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Clock marks advance a stream's watermark, which closes windows on arrival time."""

    def watermark_after(seconds: int) -> int:
        """Return by how many us the watermark advances in some seconds without rows."""
        log = server.store._logs["numbers"].writer
        assert log is not None
        before = log.watermark
        for _ in range(seconds * 10):
            clock.advance(seconds=0.1)
            server.store.maintain()
        return log.watermark - before

    with Server(tmp_path, clock) as server:
        store = server.start(readers=ScriptedReaders(waiting=["numbers"]), max_clock_step="1m")
        store.create(spec(NUMBERS))
        store.offer(None, "numbers", 0, numbers(1), 8)
        store.flush()
        watermark_after(10)
        clock.step(seconds=DAY)
        assert watermark_after(10) == pytest.approx(70_500_000, rel=0.05)
        clock.step(seconds=-DAY)
        assert watermark_after(20) == pytest.approx(19_000_000, rel=0.06)
        # A restart while the clock is a day ahead takes its time; then it goes back again.
        clock.step(seconds=DAY)
        store = server.again()
        store.offer(None, "numbers", 0, numbers(2), 8)
        store.flush()
        clock.step(seconds=-DAY)
        server.again()
        assert server.store.clock.ahead > (DAY - 100) * SECOND
        assert watermark_after(20) == pytest.approx(19_000_000, rel=0.06)
        server.store.offer(None, "numbers", 0, numbers(3), 8)
        server.store.flush()
        assert watermark_after(20) == pytest.approx(19_000_000, rel=0.06)
        arrivals = server.arrivals("numbers")
        assert arrivals == sorted(arrivals)
        assert arrivals[2] - arrivals[1] == pytest.approx(19 * SECOND, rel=0.06)
