"""Time in streams: clock marks, silent producers, those that join and end, and completion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.services.stream_store import (
    EVENTS,
    NUMBERS,
    ScriptedReaders,
    Server,
    events,
    numbers,
    spec,
)

from mavstream_server.core.errors import Conflict
from mavstream_server.ingest.stream_store import Accepted
from mavstream_server.log import FrameKind
from mavstream_server.testing import ManualClock


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        yield made


def test_clock_marks_are_written_to_streams_that_windows_read(server: Server) -> None:
    readers = ScriptedReaders(waiting=("a", "events"))
    store = server.start(readers=readers)
    for name in ("a", "b"):
        store.create(spec(NUMBERS, name=name))
    store.create(spec(EVENTS))
    for step in range(10):
        server.clock.advance(seconds=0.1)
        if step < 5:
            store.offer("p", "a", step + 1, numbers(step), 50)
            store.flush()
        store.maintain()
    # Rows advance the time themselves.
    assert server.kinds("a") == ["DATA"] * 5 + ["CLOCK"] * 5
    assert server.kinds("b") == server.kinds("events") == []
    assert store.info("a").watermark == "2023-11-14T22:13:21.000000Z"
    # In a long idle time marks become rare.
    for _ in range(2000):
        server.clock.advance(seconds=0.1)
        store.maintain()
    assert 300 < len(server.kinds("a")) < 600
    for _ in range(20):
        server.clock.advance(seconds=0.1)
        store.maintain()
    assert server.clock.now() - server.frames("a")[-1].arrival <= 1_100_000_000
    readers.waiting.clear()
    count = len(server.kinds("a"))
    server.clock.advance(seconds=10)
    store.maintain()
    assert len(server.kinds("a")) == count


def test_an_idle_producer_no_longer_holds_the_watermark_back(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS, idle_timeout="2s"))
    store.offer("p", "events", 1, events(100), 50)
    store.offer("q", "events", 1, events(900), 50)
    store.flush()
    assert server.frames("events")[-1].after == 100
    server.clock.advance(seconds=1.5)
    store.offer("q", "events", 2, events(950), 50)
    store.flush()
    store.maintain()
    assert "IDLE" not in server.kinds("events")
    server.clock.advance(seconds=0.6)
    store.maintain()
    assert server.kinds("events")[-1] == "IDLE"
    assert server.frames("events")[-1].after == 950
    # After a restart it is unknown which producers are live: the timeout starts again.
    store = server.again()
    store.offer("r", "events", 1, events(2000), 50)
    store.flush()
    assert server.frames("events")[-1].after == 950
    server.clock.advance(seconds=1.9)
    store.offer("r", "events", 2, events(2100), 50)
    store.flush()
    store.maintain()
    assert server.frames("events")[-1].after == 950
    server.clock.advance(seconds=0.2)
    store.maintain()
    assert server.frames("events")[-1].after == 2100


def test_a_producer_that_joins_is_waited_for_and_one_that_ends_is_not(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    assert store.join("late", "events") is not None
    assert store.join("p", "events") is not None
    store.offer("p", "events", 1, events(500), 50)
    store.flush()
    assert store.info("events").watermark is None
    assert store.join("late", "events") is None  # already
    store.offer("late", "events", 1, events(200), 50)
    ended = store.end("late", "events")
    store.flush()
    assert ended.settled
    assert server.kinds("events") == ["JOIN", "JOIN", "DATA", "DATA", "END"]
    assert server.frames("events")[-1].after == 500


def test_a_complete_stream_accepts_no_more_rows(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50)
    handle = store.complete("numbers")
    with pytest.raises(Conflict, match="was completed and takes no more rows"):
        store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert handle.result() == Accepted(0, 1, 0)
    assert server.kinds("numbers") == ["DATA", "COMPLETE"]
    assert store.info("numbers").watermark == "9999-12-31T23:59:59.999999Z"
    store = server.again()
    with pytest.raises(Conflict) as caught:
        store.offer("p", "numbers", 2, numbers(2), 50)
    assert caught.value.code == "stream_complete"
    assert store.credit("p", "numbers") == 0


def test_marks_do_not_use_sequences_of_rows(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    store.offer("p", "events", 1, events(), 50)  # an empty frame still has its number
    store.end("p", "events")
    store.offer("p", "events", 2, events(5), 50)  # and a producer that ended can start again
    store.flush()
    kinds = [frame.kind for frame in server.frames("events")]
    assert kinds == [FrameKind.DATA, FrameKind.END, FrameKind.DATA]
    assert store.last_sequence("p", "events") == 2
