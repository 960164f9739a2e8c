"""Important streams are appended first, wake the engine at once, and make connections important."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.services.stream_store import NUMBERS, ManualTimers, Producer, Server, numbers, spec

from mavstream_server.core.importance import AllEqual
from mavstream_server.ingest.append_handle import AppendHandle
from mavstream_server.testing import ManualClock


class Priorities(AllEqual):
    """The importance of streams, as a test says."""

    def __init__(self, **streams: int) -> None:
        self.streams = streams
        self.version = 0
        self.highest = max(streams.values())

    def of_stream(self, stream: str) -> int:
        return self.streams.get(stream, 0)

    def change(self, **streams: int) -> None:
        self.streams |= streams
        self.version += 1


class SlowClock(ManualClock):
    """A clock that advances by a millisecond whenever it is read, so that a turn ends after one append."""

    def monotonic(self) -> int:
        self.advance(nanoseconds=1_000_000)
        return self.now()


class Bench:
    """Streams whose flushes a test makes turn by turn."""

    def __init__(self, server: Server, **streams: int) -> None:
        self.server = server
        self.timers = ManualTimers()
        self.importance = Priorities(**streams)
        self.store = server.start(timers=self.timers, importance=self.importance)
        self.appended: list[str] = []
        self.sequences: dict[str, int] = {}
        for name in streams:
            self.store.create(spec(NUMBERS, name=name))

    def offer(self, *streams: str) -> None:
        for stream in streams:
            sequence = self.sequences[stream] = self.sequences.get(stream, 0) + 1
            self.store.offer("p", stream, sequence, numbers(sequence), 50, done=self._settled)

    def _settled(self, handle: AppendHandle) -> None:
        self.appended.append(handle.stream)

    def turn(self) -> None:
        due = self.timers.soon[:]
        self.timers.soon.clear()
        for callback in due:
            callback()

    def turns(self) -> None:
        while self.timers.soon:
            self.turn()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, SlowClock()) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, ManualClock()) as server:
        yield server


def test_the_most_important_stream_is_appended_first(slow: Server) -> None:
    bench = Bench(slow, n1=1, n2=1, m=3, h=6)
    bench.offer("n1", "n2", "m", "h")
    bench.turns()
    assert bench.appended == ["h", "m", "n1", "n2"]


def test_the_engine_is_woken_for_important_rows_before_others_are_appended(server: Server) -> None:
    bench = Bench(server, n1=1, n2=1, h=6)
    rung = server.rung
    bench.offer("n1", "h", "n2")
    bench.turn()
    assert bench.appended == ["h"]
    assert server.rung == rung + 1
    bench.turn()
    assert bench.appended == ["h", "n1", "n2"]
    assert server.rung == rung + 2


def test_a_stream_is_appended_eventually_however_busy_more_important_ones_are(slow: Server) -> None:
    bench = Bench(slow, n=1, h=6)
    bench.offer("n")
    for _ in range(40):
        bench.offer("h")
        bench.turn()
    assert "n" in bench.appended
    assert bench.appended.index("n") > 10


def test_a_new_importance_counts_from_the_next_rows_on(slow: Server) -> None:
    bench = Bench(slow, a=1, b=2)
    bench.offer("a", "b")
    bench.turns()
    bench.importance.change(a=3)
    bench.offer("b", "a")
    bench.turns()
    assert bench.appended == ["b", "a", "a", "b"]


def test_flushing_by_hand_appends_everything_and_rings_once(server: Server) -> None:
    bench = Bench(server, n=1, h=6)
    bench.offer("n", "h", "n")
    rung = server.rung
    bench.store.flush()
    assert bench.appended == ["h", "n", "n"]
    assert server.rung == rung + 1


def test_a_connection_is_as_important_as_its_most_important_stream(server: Server) -> None:
    importance = Priorities(n=1, h=6)
    store = server.start(importance=importance)
    for name in ("n", "h"):
        store.create(spec(NUMBERS, name=name))
    low, both = Producer(server, "n", name="low"), Producer(server, "n", "h", name="both")
    assert (low.session.importance, both.session.importance) == (1, 6)
    low.send(numbers(1), ("h", 1, 1))
    assert low.session.importance == 6
    importance.change(h=2)
    assert (low.session.importance, both.session.importance) == (2, 2)
