"""Overloaded streams: detection by backlog, credit of their producers, and recovery."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.services.stream_store import (
    NUMBERS,
    ReturnedCredit,
    ScriptedReaders,
    Server,
    numbers,
    spec,
)

from mavstream_server.core.importance import AllEqual
from mavstream_server.ingest.overload import OverloadDetector
from mavstream_server.testing import ManualClock

SECOND = 1_000_000_000
TICK = SECOND // 2


class Scenario:
    """A stream and its fastest query, observed twice a second."""

    def __init__(self, end: int = 0) -> None:
        self.overload = OverloadDetector()
        self.now, self.end, self.read = 0, end, 0
        self.overload.observe(0, end, 0, 0)

    def pass_time(self, seconds: float, arriving: int, reading: int, spare: int = 0) -> bool:
        """Let time pass at a rate of rows per second; returns whether the stream is overloaded then."""
        for _ in range(int(seconds * 2)):
            self.now += TICK
            self.end += arriving // 2
            self.read = min(self.read + reading // 2, self.end)
            self.overload.observe(self.now, self.end, self.read, spare)
        return self.overload.active


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_a_stream_is_overloaded_with_more_than_two_seconds_of_reading(scenario: Scenario) -> None:
    assert not scenario.pass_time(2, arriving=2000, reading=1000)
    assert scenario.pass_time(1, arriving=2000, reading=1000)


def test_an_overload_ends_with_a_second_left_to_read(scenario: Scenario) -> None:
    scenario.pass_time(3, arriving=2000, reading=1000)
    assert scenario.pass_time(1.5, arriving=0, reading=1000)
    assert not scenario.pass_time(0.5, arriving=0, reading=1000)
    assert scenario.end - scenario.read == 1000


def test_a_query_that_catches_up_slows_no_producer() -> None:
    assert not Scenario(end=1_000_000).pass_time(20, arriving=1000, reading=10_000)


def test_a_backlog_within_the_spare_rows_is_not_an_overload(scenario: Scenario) -> None:
    assert not scenario.pass_time(30, arriving=200, reading=100, spare=5000)
    assert scenario.pass_time(30, arriving=200, reading=100, spare=5000)


def test_a_query_that_stops_reading_overloads_its_stream(scenario: Scenario) -> None:
    scenario.pass_time(3, arriving=1000, reading=1000)
    assert scenario.pass_time(10, arriving=1000, reading=0)


def test_a_stream_without_readers_is_not_overloaded(scenario: Scenario) -> None:
    assert scenario.pass_time(3, arriving=2000, reading=1000)
    scenario.overload.observe(scenario.now + TICK, scenario.end, None, 0)
    assert not scenario.overload.active


class Important(AllEqual):
    """A more important class than that of the stream's readers runs."""

    highest = 6

    def of_stream(self, stream: str) -> int:
        return 1


class Fastest(ScriptedReaders):
    """A query that reads as far as a test says."""

    read = 0

    def read_position(self, stream: str) -> int | None:
        return self.read


def overload(server: Server, readers: Fastest) -> list[int]:
    """Append two rows for every row that is read; return the credit with every ack."""
    store, granted = server.store, []
    for sequence in range(1, 41):
        store.offer("p", "numbers", sequence, numbers(1, 2), 50)
        store.flush()
        readers.read = sequence
        server.clock.advance(nanoseconds=TICK)
        store.maintain()
        granted.append(store.credit("p", "numbers"))
    return granted


def test_the_producers_of_an_overloaded_stream_get_no_credit_until_it_was_read(tmp_path: Path) -> None:
    readers, returned = Fastest(), ReturnedCredit()
    with Server(tmp_path, ManualClock()) as server:
        store = server.start(readers=readers, importance=Important(), producers=returned, credit_bytes=64)
        store.create(spec(NUMBERS))
        granted = overload(server, readers)
        assert (granted[0], granted[-1]) == (64, 0)
        assert store.info("numbers").overloaded
        assert server.values("numbers") == [1, 2] * 40  # slowed, and nothing lost
        readers.read = 78
        server.clock.advance(nanoseconds=TICK)
        store.maintain()
        assert store.credit("p", "numbers") == 64
        assert returned.streams == ["numbers"]
        assert not store.info("numbers").overloaded


def test_a_stream_is_not_slowed_if_no_more_important_class_runs(tmp_path: Path) -> None:
    readers = Fastest()
    with Server(tmp_path, ManualClock()) as server:
        server.start(readers=readers, importance=AllEqual(), credit_bytes=64).create(spec(NUMBERS))
        assert set(overload(server, readers)) == {64}
