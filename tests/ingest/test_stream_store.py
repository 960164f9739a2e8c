"""Streams append frames together and in order, lose and duplicate nothing, and continue after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.services.stream_store import EVENTS, NUMBERS, ManualTimers, Server, events, numbers, spec

from mavstream_protocol.errors import InvalidTuples
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Conflict, NotFound, NotReady, Refused, SequenceGap, TooMany
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.stream_store import Accepted, Repeated, StreamStore
from mavstream_server.log import LogBusyError
from mavstream_server.testing import ManualClock


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        yield made


def test_pending_frames_are_appended_together_and_then_acked(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    settled: list[int] = []
    handles = [
        store.offer(name, "numbers", n, numbers(n), 50, done=lambda handle: settled.append(handle.sequence))
        for n in (1, 2, 3)
        for name in ("p", "q")
    ]
    assert not settled
    assert server.rung == 0
    store.flush()
    assert settled == [1, 1, 2, 2, 3, 3]
    assert server.rung == 1
    assert [handle.outcome for handle in handles[:3]] == [
        *(Accepted(1, 0, 1), Accepted(1, 1, 1), Accepted(2, 2, 1)),
    ]
    frames = server.frames("numbers")
    assert [(frame.producer, frame.sequence) for frame in frames] == [
        *((1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)),
    ]
    assert {frame.arrival for frame in frames} == {server.clock.now()}
    assert store.info("numbers").producers == {"p": 3, "q": 3}
    assert store.counts("numbers") == (6, 6, 0)
    store.flush()
    assert server.rung == 1  # nothing new


def test_ten_thousand_small_frames_are_appended_at_once(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    handles = [store.offer("p", "numbers", n, numbers(n), 50) for n in range(1, 10_001)]
    store.flush()
    assert all(handle.outcome == Accepted(n, n - 1, 1) for n, handle in enumerate(handles, 1))
    assert server.rung == 1
    assert server.values("numbers") == list(range(1, 10_001))


def test_a_repeated_frame_is_acked_again_and_ignored(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    first = store.offer("p", "numbers", 1, numbers(1), 50)
    again = store.offer("p", "numbers", 1, numbers(1), 50)
    assert not again.settled  # its first one is not in the log yet
    store.flush()
    assert (first.result(), again.result()) == (Accepted(1, 0, 1), Repeated(1, 1))
    assert store.offer("p", "numbers", 1, numbers(9), 50).result() == Repeated(1, 1)
    assert server.values("numbers") == [1]
    assert store.counts("numbers").repeated == 2


def test_a_gap_names_the_frame_that_is_expected(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50)
    with pytest.raises(SequenceGap, match=r"sent frame 3 of stream 'numbers', expected is frame 2") as caught:
        store.offer("p", "numbers", 3, numbers(3), 50)
    assert caught.value.expected == 2
    store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert server.values("numbers") == [1, 2]


def test_rows_may_be_appended_without_a_producer(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    store.offer("p", "events", 1, events(100), 50)
    store.offer(None, "events", 0, events(900), 50)
    store.offer("p", "events", 2, events(500), 50)
    store.flush()
    store.offer("p", "events", 3, events(700), 50)
    store.flush()
    # Unnamed producers do not hold the watermark back: p alone decides it.
    assert server.frames("events")[-1].after == 700
    assert store.info("events").producers == {"p": 3}
    with pytest.raises(Refused, match="got frame 4 without a producer"):
        store.offer(None, "events", 4, events(1), 50)
    with pytest.raises(Refused, match="count its frames from 1"):
        store.offer("p", "events", 0, events(1), 50)


def test_rows_from_the_far_future_are_rejected_by_row_and_field(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS, max_ahead="1s"))
    now = server.clock.now() // 1000
    store.offer("p", "events", 1, events(now, now + 1_000_000), 50)
    with pytest.raises(InvalidTuples, match=r"may be at most 1s ahead of the server's clock") as caught:
        store.offer("p", "events", 2, events(now, now + 1_000_001, now, now + 5_000_000), 50)
    assert [(item.pointer, item.code) for item in caught.value.items] == [
        ("rows/1/at", "too_far_ahead"),
        ("rows/3/at", "too_far_ahead"),
    ]
    store.offer("p", "events", 2, events(now), 50)  # the number was not used up
    store.flush()
    assert store.info("events").position == 3


def test_invalid_columns_are_refused(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    with pytest.raises(InvalidTuples, match="no field 'at'"):
        store.offer("p", "numbers", 1, events(1), 50)
    assert store.last_sequence("p", "numbers") == 0


def test_streams_are_created_once_and_removed_when_no_query_reads_them(server: Server) -> None:
    store = server.start(max_streams=2)
    info = store.create(spec(NUMBERS))
    assert (info.position, info.bytes > 0, info.watermark, info.held_by) == (0, True, None, None)
    store.create(spec(EVENTS))
    assert store.names == ("events", "numbers")
    assert store.shapes()["events"].event_time == "at"
    with pytest.raises(Conflict, match="stream 'numbers' exists already"):
        store.create(spec(NUMBERS))
    with pytest.raises(TooMany, match="one more than the 2"):
        store.create(spec(NUMBERS, name="third"))
    with pytest.raises(Conflict, match="is read by 'q1', 'q2': remove these queries first"):
        store.remove("numbers", ["q1", "q2"])
    waits = store.offer("p", "numbers", 1, numbers(1), 50)
    store.remove("numbers")
    with pytest.raises(NotFound):
        waits.result()
    assert not (server.path / "streams" / "numbers").exists()
    with pytest.raises(NotFound, match="there is no stream 'numbers'"):
        store.offer("p", "numbers", 1, numbers(1), 50)
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50)  # counted from 0 again
    store.flush()
    assert server.again().names == ("events", "numbers")


def test_a_directory_with_rows_of_an_unknown_stream_is_not_reused(server: Server) -> None:
    store = server.start()
    path = server.path / "streams" / "numbers"
    path.mkdir()
    (path / "lock").touch()
    store.create(spec(NUMBERS))  # leftovers of a crash before the stream was registered do not matter
    store.offer("p", "numbers", 1, numbers(1), 50)
    server.stop()
    (server.path / "catalog.sqlite").unlink()
    store = server.start()
    with pytest.raises(Conflict, match="holds rows: move it away first"):
        store.create(spec(NUMBERS))
    assert store.names == ()
    assert server.values("numbers") == [1]


def test_a_restart_continues_where_the_server_stopped(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS, lateness="0s"))
    for n in (1, 2, 3):
        store.offer("p", "events", n, events(n * 100), 50)
    store.flush()
    before = store.info("events")
    store = server.again()
    assert store.info("events") == before
    assert store.producer_credit("p", "events").last_sequence == 3
    assert store.offer("p", "events", 3, events(300), 50).result() == Repeated(3, 3)
    assert store.last_sequence("q", "events") == 0
    store.offer("p", "events", 4, events(400), 50)
    store.flush()
    assert store.info("events").position == 4


def test_a_directory_has_one_server(server: Server) -> None:
    server.start().create(spec(NUMBERS))
    catalog = Catalog(server.path / "catalog.sqlite")
    with pytest.raises(LogBusyError, match="one writer"):
        StreamStore(Settings(data=server.path), catalog, server.clock)
    catalog.close()


def test_a_failing_callback_does_not_prevent_acks_of_others(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50, done=lambda handle: 1 / 0)
    second = store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert second.settled
    assert "callback of an append failed" in caplog.text


def test_a_frame_at_shutdown_is_in_the_log_or_rejected(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    handle = store.offer("p", "numbers", 1, numbers(1), 50)
    server.stop()
    assert handle.result() == Accepted(1, 0, 1)
    assert server.values("numbers") == [1]
    assert server.start().last_sequence("p", "numbers") == 1


def test_on_an_event_loop_flushes_are_scheduled_automatically(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(data=tmp_path)
        catalog = Catalog(settings.catalog_file)
        rings: list[int] = []
        store = StreamStore(
            settings,
            catalog,
            SystemClock(),
            timers=asyncio.get_running_loop(),
            ring=lambda: rings.append(1),
        )
        store.create(spec(NUMBERS))
        outcomes = await asyncio.gather(
            *(store.enqueuer.ingest(None, "numbers", 0, numbers(n), 50) for n in range(100))
        )
        assert [outcome.position for outcome in outcomes if isinstance(outcome, Accepted)] == list(range(100))
        assert len(rings) == 1
        with pytest.raises(NotFound, match="did you mean 'numbers'"):
            await store.enqueuer.ingest(None, "number", 0, numbers(1), 50)
        store.close()
        with pytest.raises((NotFound, NotReady)):
            await store.enqueuer.ingest(None, "numbers", 0, numbers(1), 50)
        catalog.close()

    asyncio.run(main())


class SlowClock(ManualClock):
    """A clock that advances by a number of ns whenever it is read."""

    step = 0

    def monotonic(self) -> int:
        self.advance(nanoseconds=self.step)
        return self.now()


@pytest.mark.parametrize(("streams", "fewest", "most"), [(3, 1, 1), (30, 5, 15)])
def test_the_doorbell_rings_once_per_flush_and_once_per_millisecond_in_long_ones(
    tmp_path: Path, streams: int, fewest: int, most: int
) -> None:
    timers = ManualTimers()
    clock = SlowClock()
    with Server(tmp_path, clock) as server:
        store = server.start(timers=timers)
        for number in range(streams):
            store.create(spec(NUMBERS, name=f"s{number}"))
        rung_before = server.rung
        for number in range(streams):
            store.offer("p", f"s{number}", 1, numbers(number), 50)
        clock.step = 100_000
        count = 0
        while timers.soon:
            timers.soon.pop(0)()
            count += 1
        assert count == streams  # each turn is long enough for one append
        assert fewest <= server.rung - rung_before <= most
        assert all(server.values(f"s{number}") == [number] for number in range(streams))
