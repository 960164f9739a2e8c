"""Streams take frames together, lose and double nothing, and say why when they do not take them."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mavstream_protocol.problems import InvalidTuples
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.tuples import decode_columns
from mavstream_server.engine.clock import SystemClock
from mavstream_server.log import Frame, FrameKind, LogBusyError, LogReader
from mavstream_server.service.background import InThreads
from mavstream_server.service.catalog import Catalog
from mavstream_server.service.problems import (
    Conflict,
    NotFound,
    NotReady,
    OverQuota,
    Refused,
    SequenceGap,
    StorageFailed,
    StorageFull,
    TooLarge,
    TooMany,
)
from mavstream_server.service.settings import Settings
from mavstream_server.service.streams import Accepted, Repeated, StreamStore
from mavstream_server.testing import ManualClock

EVENTS = {
    "name": "events",
    "fields": [{"name": "at", "type": "timestamp"}, {"name": "home", "type": "string", "nullable": True}],
    "event_time": "at",
}
NUMBERS = {"name": "numbers", "fields": [{"name": "n", "type": "int"}]}


def spec(base: dict[str, Any], **changes: Any) -> StreamSpec:
    return StreamSpec.model_validate({**base, **changes})


def numbers(*values: int) -> Any:
    return decode_columns(spec(NUMBERS).schema(), {"n": list(values)})


def events(*times: int, home: str = "a") -> Any:
    return decode_columns(spec(EVENTS).schema(), {"at": list(times), "home": [home] * len(times)})


class Server:
    """A store with its catalog in a directory, which can be opened again."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self.path = path
        self.clock = clock
        self.rung = 0
        self.options: dict[str, Any] = {}
        self._open: list[Catalog | StreamStore] = []

    def start(self, **options: Any) -> StreamStore:
        self.options = options or self.options
        settings = Settings(data=self.path, **self.options)
        catalog = Catalog(settings.catalog_file)
        self._open = [catalog]
        self.store = StreamStore(settings, catalog, self.clock, news=self._ring)
        self._open.insert(0, self.store)
        return self.store

    def stop(self) -> None:
        for part in self._open:
            part.close()
        self._open = []

    def again(self) -> StreamStore:
        self.stop()
        return self.start()

    def _ring(self) -> None:
        self.rung += 1

    def frames(self, stream: str) -> list[Frame]:
        reader = LogReader(self.path / "streams" / stream)
        cursor = reader.cursor(reader.begin)
        found = []
        while (step := cursor.next()) is not None:
            found.append(step[0])
        return found

    def kinds(self, stream: str) -> list[str]:
        return [frame.kind.name for frame in self.frames(stream)]

    def values(self, stream: str) -> list[int]:
        return [n for frame in self.frames(stream) if frame.rows for n in frame.column("n").values.tolist()]


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    server = Server(tmp_path, clock)
    yield server
    server.stop()


def test_frames_of_one_moment_are_appended_together_and_then_acked(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    settled: list[int] = []
    tickets = [
        store.offer(name, "numbers", n, numbers(n), 50, done=lambda ticket: settled.append(ticket.sequence))
        for n in (1, 2, 3)
        for name in ("p", "q")
    ]
    assert not settled
    assert server.rung == 0
    store.flush()
    assert settled == [1, 1, 2, 2, 3, 3]
    assert server.rung == 1
    assert [ticket.outcome for ticket in tickets[:3]] == [
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


def test_ten_thousand_small_frames_go_in_at_once(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    tickets = [store.offer("p", "numbers", n, numbers(n), 50) for n in range(1, 10_001)]
    store.flush()
    assert all(ticket.outcome == Accepted(n, n - 1, 1) for n, ticket in enumerate(tickets, 1))
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


def test_rows_may_come_without_a_producer(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    store.offer("p", "events", 1, events(100), 50)
    store.offer(None, "events", 0, events(900), 50)
    store.offer("p", "events", 2, events(500), 50)
    store.flush()
    store.offer("p", "events", 3, events(700), 50)
    store.flush()
    # Who has no name holds nothing back: p alone tells how far time is.
    assert server.frames("events")[-1].after == 700
    assert store.info("events").producers == {"p": 3}
    with pytest.raises(Refused, match="frame 4 came without a producer"):
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


def test_columns_that_do_not_fit_are_refused(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    with pytest.raises(InvalidTuples, match="no field 'at'"):
        store.offer("p", "numbers", 1, events(1), 50)
    assert store.last_sequence("p", "numbers") == 0


def test_streams_are_created_once_and_removed_when_nobody_reads_them(server: Server) -> None:
    store = server.start(max_streams=2)
    info = store.create(spec(NUMBERS))
    assert (info.position, info.bytes > 0, info.watermark, info.held_by) == (0, True, None, None)
    store.create(spec(EVENTS))
    assert store.names == ("events", "numbers")
    assert store.shapes()["events"].event_time == "at"
    with pytest.raises(Conflict, match="there is a stream 'numbers' already"):
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
    store.offer("p", "numbers", 1, numbers(1), 50)  # counted anew
    store.flush()
    assert server.again().names == ("events", "numbers")


def test_rows_that_nobody_knows_are_not_taken_over(server: Server) -> None:
    store = server.start()
    path = server.path / "streams" / "numbers"
    path.mkdir()
    (path / "lock").touch()
    store.create(spec(NUMBERS))  # what a death left of a stream that was never made is no hindrance
    store.offer("p", "numbers", 1, numbers(1), 50)
    server.stop()
    (server.path / "catalog.sqlite").unlink()
    store = server.start()
    with pytest.raises(Conflict, match="holds rows: move it away first"):
        store.create(spec(NUMBERS))
    assert store.names == ()
    assert server.values("numbers") == [1]


def test_a_restart_goes_on_where_it_was(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS, lateness="0s"))
    for n in (1, 2, 3):
        store.offer("p", "events", n, events(n * 100), 50)
    store.flush()
    before = store.info("events")
    store = server.again()
    assert store.info("events") == before
    assert store.standing("p", "events").last_sequence == 3
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


def fill(server: Server, store: StreamStore, size: int, producer: str = "p") -> int:
    """Send frames of about 8 kB until so many bytes were sent; return the last sequence."""
    sequence = store.last_sequence(producer, "numbers")
    for _ in range(-(-size // 8192)):
        sequence += 1
        store.offer(producer, "numbers", sequence, numbers(*range(1000)), 8192)
        store.flush()
        server.clock.advance(seconds=0.01)
    return sequence


def test_a_sequence_is_remembered_when_its_frames_are_gone(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, retention={"bytes": "128KiB"}))
    store.offer("early", "numbers", 1, numbers(1), 50)
    store.flush()
    for _ in range(4):
        fill(server, store, 200_000)
        server.clock.advance(seconds=2)
        store.housekeeping()
    assert store.info("numbers").begin > 1
    assert store.info("numbers").bytes < 300_000
    # As after SIGKILL: nothing is closed, the catalog has what retention left there.
    store._logs["numbers"].close()
    catalog = Catalog(server.path / "catalog.sqlite")
    other = StreamStore(Settings(data=server.path), catalog, server.clock)
    assert other.offer("early", "numbers", 1, numbers(1), 50).result() == Repeated(1, 1)
    other.close()
    catalog.close()


def test_retention_leaves_what_a_query_needs(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, retention={"time": "1s", "bytes": "512KiB"}))
    needed: dict[str, int] = {"numbers": 0}
    store.on_need(needed.get, {"numbers": "slow"}.get)
    fill(server, store, 600_000)
    server.clock.advance(seconds=5)
    store.housekeeping()
    info = store.info("numbers")
    assert (info.begin, info.held_by) == (0, "slow")
    needed["numbers"] = info.position
    server.clock.advance(seconds=5)
    store.housekeeping()
    info = store.info("numbers")
    assert info.begin > 50_000
    assert info.held_by is None


def test_at_its_quota_a_stream_waits_for_the_query_that_holds_it(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, quota="512KiB"))
    store.create(spec(NUMBERS, name="other"))
    needed: dict[str, int] = {"numbers": 0}
    returned: list[str] = []
    store.on_need(needed.get, {"numbers": "slow"}.get)
    store.on_credit(returned.append)
    last = fill(server, store, 500_000)
    assert store.credit("p", "numbers") == 8 << 20
    while store.credit("p", "numbers"):
        last += 1
        parked = store.offer("p", "numbers", last, numbers(*range(1000)), 8192)
        store.flush()
    assert not parked.settled
    info = store.info("numbers")
    assert (info.over_quota, info.held_by) == (True, "slow")
    assert info.bytes <= 512 << 10
    with pytest.raises(OverQuota, match=r"its quota is 512KiB, and query 'slow' has not read") as caught:
        store.offer(None, "numbers", 0, numbers(1), 50, parks=False)
    assert caught.value.held_by == "slow"
    end = store.end("p", "numbers")
    store.housekeeping()
    assert not parked.settled
    # Only the producers of this stream are slowed.
    assert store.credit("p", "other") == 8 << 20
    store.offer("p", "other", 1, numbers(1), 50)
    store.flush()
    assert store.info("other").position == 1
    needed["numbers"] = 40_000
    store.housekeeping()
    store.flush()
    assert parked.result() == Accepted(last, (last - 1) * 1000, 1000)
    assert end.settled
    assert returned == ["numbers"]
    assert store.credit("p", "numbers") == 8 << 20
    assert store.info("numbers").held_by is None
    assert server.kinds("numbers")[-1] == "END"


def test_a_quota_without_slow_readers_slows_nobody(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, quota="512KiB", retention={"bytes": "512KiB"}))
    fill(server, store, 3_000_000)
    info = store.info("numbers")
    assert (info.over_quota, info.position) == (False, 367_000)
    assert 300_000 < info.bytes <= 512 << 10


def test_time_that_retention_promises_is_kept_at_the_quota(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, quota="256KiB", retention="10s"))
    last = 0
    while store.credit("p", "numbers"):
        last = fill(server, store, 8192)
    with pytest.raises(OverQuota, match="its retention keeps rows for 10s"):
        store.offer(None, "numbers", 0, numbers(1), 50, parks=False)
    server.clock.advance(seconds=20)
    store.housekeeping()
    assert store.credit("p", "numbers")
    store.flush()
    assert store.last_sequence("p", "numbers") == last
    assert fill(server, store, 8192) == last + 1


def test_what_waits_is_bounded(server: Server) -> None:
    store = server.start(credit_bytes=20_000)
    store.create(spec(NUMBERS, quota="256KiB"))
    store.create(spec(NUMBERS, name="other"))
    store.on_need({"numbers": 0}.get)
    with pytest.raises(TooLarge, match="may have 256KiB in all"):
        store.offer("p", "numbers", 1, numbers(*range(40_000)), 8)
    last = 0
    while store.credit("p", "numbers"):
        last += 1
        store.offer("p", "numbers", last, numbers(*range(1000)), 8192)
        store.flush()
    with pytest.raises(OverQuota):  # noqa: PT012
        for n in range(last + 1, last + 10):
            store.offer("p", "numbers", n, numbers(*range(1000)), 8192)
    with pytest.raises(TooMany, match="the credit is 20KB: wait for acks"):  # noqa: PT012
        for n in range(1, 10):
            store.offer("p", "other", n, numbers(1), 8192)


def test_all_streams_together_have_a_limit(server: Server) -> None:
    store = server.start(max_disk_bytes=1_000_000)
    store.create(spec(NUMBERS, retention={"bytes": "512KiB"}))
    store.create(spec(NUMBERS, name="free", quota="100MB"))
    store.on_need({"numbers": 0}.get)
    fill(server, store, 900_000)
    assert store.credit("p", "numbers")
    while store.credit("p", "numbers"):
        fill(server, store, 8192)
    with pytest.raises(StorageFull, match="all streams together have") as caught:
        store.offer(None, "numbers", 0, numbers(*range(9000)), 50, parks=False)
    assert caught.value.code == "disk_limit"
    store.on_need(lambda stream: None)
    server.clock.advance(seconds=2)
    store.housekeeping()
    assert store.credit("p", "numbers")


def test_time_passes_on_streams_that_windows_read(server: Server) -> None:
    store = server.start()
    for name in ("a", "b"):
        store.create(spec(NUMBERS, name=name))
    store.create(spec(EVENTS))
    store.set_readers("a", True)
    store.set_readers("events", True)
    for step in range(10):
        server.clock.advance(seconds=0.1)
        if step < 5:
            store.offer("p", "a", step + 1, numbers(step), 50)
            store.flush()
        store.housekeeping()
    # Rows tell the time themselves.
    assert server.kinds("a") == ["DATA"] * 5 + ["CLOCK"] * 5
    assert server.kinds("b") == server.kinds("events") == []
    assert store.info("a").watermark == "2023-11-14T22:13:21.000000Z"
    # When all is silent for long, marks grow rare.
    for _ in range(2000):
        server.clock.advance(seconds=0.1)
        store.housekeeping()
    assert 300 < len(server.kinds("a")) < 600
    for _ in range(20):
        server.clock.advance(seconds=0.1)
        store.housekeeping()
    assert server.clock.now() - server.frames("a")[-1].arrival <= 1_100_000_000
    store.set_readers("a", False)
    count = len(server.kinds("a"))
    server.clock.advance(seconds=10)
    store.housekeeping()
    assert len(server.kinds("a")) == count


def test_a_silent_producer_no_longer_holds_time_back(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS, idle_timeout="2s"))
    store.offer("p", "events", 1, events(100), 50)
    store.offer("q", "events", 1, events(900), 50)
    store.flush()
    assert server.frames("events")[-1].after == 100
    server.clock.advance(seconds=1.5)
    store.offer("q", "events", 2, events(950), 50)
    store.flush()
    store.housekeeping()
    assert "IDLE" not in server.kinds("events")
    server.clock.advance(seconds=0.6)
    store.housekeeping()
    assert server.kinds("events")[-1] == "IDLE"
    assert server.frames("events")[-1].after == 950
    # After a restart nobody knows who is still there: the wait starts anew.
    store = server.again()
    store.offer("r", "events", 1, events(2000), 50)
    store.flush()
    assert server.frames("events")[-1].after == 950
    server.clock.advance(seconds=1.9)
    store.offer("r", "events", 2, events(2100), 50)
    store.flush()
    store.housekeeping()
    assert server.frames("events")[-1].after == 950
    server.clock.advance(seconds=0.2)
    store.housekeeping()
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


def test_a_complete_stream_takes_no_more(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50)
    ticket = store.complete("numbers")
    with pytest.raises(Conflict, match="was completed and takes no more rows"):
        store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert ticket.result() == Accepted(0, 1, 0)
    assert server.kinds("numbers") == ["DATA", "COMPLETE"]
    assert store.info("numbers").watermark == "9999-12-31T23:59:59.999999Z"
    store = server.again()
    with pytest.raises(Conflict) as caught:
        store.offer("p", "numbers", 2, numbers(2), 50)
    assert caught.value.code == "stream_complete"
    assert store.credit("p", "numbers") == 0


def test_a_listener_that_fails_does_not_keep_others_from_their_acks(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50, done=lambda ticket: 1 / 0)
    second = store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert second.settled
    assert "telling the outcome of an offer failed" in caplog.text


def test_what_is_offered_at_the_end_is_in_the_log_or_refused(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    ticket = store.offer("p", "numbers", 1, numbers(1), 50)
    server.stop()
    assert ticket.result() == Accepted(1, 0, 1)
    assert server.values("numbers") == [1]
    assert server.start().last_sequence("p", "numbers") == 1


def test_a_stream_whose_files_are_damaged_does_not_stop_the_others(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.create(spec(NUMBERS, name="other"))
    server.stop()
    (segment,) = (server.path / "streams" / "numbers").glob("*.segment")
    segment.write_bytes(b"rubbish" * 1000)
    store = server.start()
    with pytest.raises(StorageFailed, match=r"stream 'numbers' cannot be opened .*not a log segment"):
        store.offer("p", "numbers", 1, numbers(1), 50)
    assert list(store.failures) == ["numbers"]
    assert store.info("numbers").position == 0
    store.offer("p", "other", 1, numbers(1), 50)
    store.flush()
    assert store.info("other").position == 1
    segment.unlink()
    server.clock.advance(seconds=2)
    store.housekeeping()
    assert store.failures == {}


def limited_files(size: int) -> Callable[[], None]:
    """Let files grow no larger, as if the disk was full; return how to undo it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    def undo() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    return undo


@pytest.mark.parametrize("delivery", ["process", "sync"])
def test_a_full_disk_refuses_frames_and_loses_none(server: Server, delivery: str) -> None:
    store = server.start(delivery=delivery)
    store.create(spec(NUMBERS, retention={"bytes": "1MB"}))  # segments of 125 kB
    store.create(spec(NUMBERS, name="other", retention={"bytes": "1MB"}))
    store.offer("p", "numbers", 1, numbers(1), 50)
    store.flush()
    undo = limited_files(400_000)
    try:
        fits = store.offer("q", "numbers", 1, numbers(7), 50)
        large = store.offer("p", "numbers", 2, numbers(*range(60_000)), 480_000)
        behind = store.offer("p", "numbers", 3, numbers(3), 50)
        other = store.offer("p", "other", 1, numbers(1), 50)
        store.flush()
        assert fits.result() == Accepted(1, 1, 1)
        for ticket in (large, behind):
            with pytest.raises(StorageFull, match="stream 'numbers' could not be written, the disk is full"):
                ticket.result()
        assert other.result() == Accepted(1, 0, 1)
        # What fits still goes in, under the number that was refused.
        small = store.offer("p", "numbers", 2, numbers(2), 50)
        store.flush()
        assert small.result() == Accepted(2, 2, 1)
    finally:
        undo()
    assert store.offer("q", "numbers", 1, numbers(7), 50).result() == Repeated(1, 1)
    store.offer("p", "numbers", 3, numbers(*range(60_000)), 480_000)
    store.flush()
    assert server.values("numbers") == [1, 7, 2, *range(60_000)]


def test_a_stream_that_cannot_be_made_leaves_nothing(server: Server) -> None:
    store = server.start()
    undo = limited_files(100_000)
    try:
        with pytest.raises(StorageFull, match="stream 'numbers' cannot be opened"):
            store.create(spec(NUMBERS))
    finally:
        undo()
    assert store.names == ()
    assert list((server.path / "streams").iterdir()) == []
    store.create(spec(NUMBERS))


def test_a_log_that_cannot_be_opened_again_is_tried_later(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50)
    store.flush()
    undo = limited_files(100_000)  # less than a segment: the log cannot even make room again
    try:
        lost = store.offer("p", "numbers", 2, numbers(*range(60_000)), 480_000)
        store.flush()
        with pytest.raises(StorageFull):
            lost.result()
        with pytest.raises(StorageFull, match="cannot be opened"):
            store.offer("p", "numbers", 2, numbers(2), 50)
        assert store.credit("p", "numbers") == 0
        server.clock.advance(seconds=2)
        store.housekeeping()
        assert store.failures
    finally:
        undo()
    returned: list[str] = []
    store.on_credit(returned.append)
    server.clock.advance(seconds=2)
    store.housekeeping()
    assert returned == ["numbers"]
    assert store.credit("p", "numbers")
    store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert server.values("numbers") == [1, 2]


def test_with_sync_acks_wait_for_the_disk_and_gather_what_comes_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        background = InThreads(loop)
        settings = Settings(data=tmp_path, delivery="sync")
        catalog = Catalog(settings.catalog_file)
        store = StreamStore(settings, catalog, SystemClock(), soon=loop.call_soon, background=background)
        store.create(spec(NUMBERS))
        first = store.offer("p", "numbers", 1, numbers(1), 50)
        await asyncio.sleep(0)
        assert store.info("numbers").position == 1  # readers see it
        assert not first.settled  # and its producer waits
        assert store.last_sequence("p", "numbers") == 0
        again = store.offer("p", "numbers", 1, numbers(1), 50)
        outcomes = await asyncio.wait_for(
            asyncio.gather(*(store.ingest("p", "numbers", n, numbers(n), 50) for n in range(2, 50))), 10
        )
        assert first.result() == Accepted(1, 0, 1)
        assert again.result() == Repeated(1, 1)
        assert [outcome.sequence for outcome in outcomes] == list(range(2, 50))
        assert store.last_sequence("p", "numbers") == 49
        last = store.offer("p", "numbers", 50, numbers(50), 50)
        store.close()
        assert last.result() == Accepted(50, 49, 1)
        with pytest.raises(NotFound):
            store.offer("p", "numbers", 51, numbers(51), 50)
        background.close()
        catalog.close()

    asyncio.run(main())


def test_on_a_loop_flushes_happen_by_themselves(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(data=tmp_path)
        catalog = Catalog(settings.catalog_file)
        rings: list[int] = []
        store = StreamStore(
            settings,
            catalog,
            SystemClock(),
            soon=asyncio.get_running_loop().call_soon,
            news=lambda: rings.append(1),
        )
        store.create(spec(NUMBERS))
        outcomes = await asyncio.gather(
            *(store.ingest(None, "numbers", 0, numbers(n), 50) for n in range(100))
        )
        assert [outcome.position for outcome in outcomes if isinstance(outcome, Accepted)] == list(range(100))
        assert len(rings) == 1
        with pytest.raises(NotFound, match="did you mean 'numbers'"):
            await store.ingest(None, "number", 0, numbers(1), 50)
        store.close()
        with pytest.raises((NotFound, NotReady)):
            await store.ingest(None, "numbers", 0, numbers(1), 50)
        catalog.close()

    asyncio.run(main())


KILLED = """
import json, sys
from pathlib import Path
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.tuples import decode_columns
from mavstream_server.engine.clock import SystemClock
from mavstream_server.service.catalog import Catalog
from mavstream_server.service.settings import Settings
from mavstream_server.service.streams import StreamStore

settings = Settings(data=Path(sys.argv[1]))
catalog = Catalog(settings.catalog_file)
store = StreamStore(settings, catalog, SystemClock())
spec = StreamSpec.model_validate_json(sys.argv[2])
if spec.name not in store:
    store.create(spec)
schema = spec.schema()
acked = {}
def done(ticket):
    acked[ticket.producer] = ticket.result().sequence
sent = {p: store.last_sequence(p, spec.name) for p in ("p", "q", "r")}
while True:
    for _ in range(7):
        for p in sent:
            sent[p] += 1
            store.offer(p, spec.name, sent[p], decode_columns(schema, {"n": [sent[p]] * 3}), 50, done=done)
    store.flush()
    store.housekeeping()
    sys.stdout.write(json.dumps(acked) + "\\n")
    sys.stdout.flush()
"""


def test_a_killed_server_has_every_acked_row_and_goes_on(server: Server) -> None:
    given = spec(NUMBERS)
    for _ in range(3):
        arguments = [sys.executable, "-c", KILLED, str(server.path), given.model_dump_json()]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(40):
                line = process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split("\n")
        acked = json.loads(rest[-2] if len(rest) > 1 else line)
        store = server.start()
        for name, last in acked.items():
            assert store.last_sequence(name, "numbers") >= last
            assert isinstance(store.offer(name, "numbers", last, numbers(0), 50).result(), Repeated)
        lasts = store.info("numbers").producers
        server.stop()
        for number, name in enumerate(("p", "q", "r"), 1):
            frames = [frame for frame in server.frames("numbers") if frame.producer == number]
            assert [frame.sequence for frame in frames] == list(range(1, lasts[name] + 1))
            assert all(frame.column("n").values.tolist() == [frame.sequence] * 3 for frame in frames)


def test_marks_are_not_confused_with_rows(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    store.offer("p", "events", 1, events(), 50)  # an empty frame still has its number
    store.end("p", "events")
    store.offer("p", "events", 2, events(5), 50)  # and who ended can come back
    store.flush()
    kinds = [frame.kind for frame in server.frames("events")]
    assert kinds == [FrameKind.DATA, FrameKind.END, FrameKind.DATA]
    assert store.last_sequence("p", "events") == 2
