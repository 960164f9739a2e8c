"""Retention and quotas of streams: queries that hold rows, and frames that wait meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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

from mavstream_server.core.errors import OverQuota, StorageFull, TooLarge, TooMany
from mavstream_server.ingest.stream_store import Accepted, Repeated, StreamStore
from mavstream_server.testing import ManualClock


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        yield made


def fill(server: Server, store: StreamStore, size: int, producer: str = "p") -> int:
    """Send frames of about 8 kB up to a number of bytes; returns the last sequence."""
    sequence = store.last_sequence(producer, "numbers")
    for _ in range(-(-size // 8192)):
        sequence += 1
        store.offer(producer, "numbers", sequence, numbers(*range(1000)), 8192)
        store.flush()
        server.clock.advance(seconds=0.01)
    return sequence


def test_the_last_sequence_is_kept_when_its_frames_are_removed(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, retention={"bytes": "128KiB"}))
    store.offer("early", "numbers", 1, numbers(1), 50)
    store.flush()
    for _ in range(4):
        fill(server, store, 200_000)
        server.clock.advance(seconds=2)
        store.maintain()
    assert store.info("numbers").begin > 1
    assert store.info("numbers").bytes < 300_000
    # As after SIGKILL: nothing was closed, and the catalog has what retention stored there.
    shutil.copytree(server.path, server.path / "killed")
    other = Server(server.path / "killed", server.clock)
    assert other.start().offer("early", "numbers", 1, numbers(1), 50).result() == Repeated(1, 1)
    other.stop()


def test_retention_keeps_rows_that_a_query_needs(server: Server) -> None:
    readers = ScriptedReaders({"numbers": 0}, {"numbers": "slow"})
    store = server.start(readers=readers)
    store.create(spec(NUMBERS, retention={"time": "1s", "bytes": "512KiB"}))
    fill(server, store, 600_000)
    server.clock.advance(seconds=5)
    store.maintain()
    info = store.info("numbers")
    assert (info.begin, info.held_by) == (0, "slow")
    readers.positions["numbers"] = info.position
    server.clock.advance(seconds=5)
    store.maintain()
    info = store.info("numbers")
    assert info.begin > 50_000
    assert info.held_by is None


def test_at_its_quota_a_stream_waits_for_the_query_that_holds_it(server: Server) -> None:
    readers, returned = ScriptedReaders({"numbers": 0}, {"numbers": "slow"}), ReturnedCredit()
    store = server.start(readers=readers, producers=returned)
    store.create(spec(NUMBERS, quota="512KiB"))
    store.create(spec(NUMBERS, name="other"))
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
    store.maintain()
    assert not parked.settled
    # Only the producers of this stream are slowed.
    assert store.credit("p", "other") == 8 << 20
    store.offer("p", "other", 1, numbers(1), 50)
    store.flush()
    assert store.info("other").position == 1
    readers.positions["numbers"] = 40_000
    store.maintain()
    store.flush()
    assert parked.result() == Accepted(last, (last - 1) * 1000, 1000)
    assert end.settled
    assert returned.streams == ["numbers"]
    assert store.credit("p", "numbers") == 8 << 20
    assert store.info("numbers").held_by is None
    assert server.kinds("numbers")[-1] == "END"


def test_a_quota_without_slow_readers_slows_no_producer(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, quota="512KiB", retention={"bytes": "512KiB"}))
    fill(server, store, 3_000_000)
    info = store.info("numbers")
    assert (info.over_quota, info.position) == (False, 367_000)
    assert 300_000 < info.bytes <= 512 << 10


def test_rows_within_the_retention_time_are_kept_at_the_quota(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, quota="256KiB", retention="10s"))
    last = 0
    while store.credit("p", "numbers"):
        last = fill(server, store, 8192)
    with pytest.raises(OverQuota, match="its retention keeps rows for 10s"):
        store.offer(None, "numbers", 0, numbers(1), 50, parks=False)
    server.clock.advance(seconds=20)
    store.maintain()
    assert store.credit("p", "numbers")
    store.flush()
    assert store.last_sequence("p", "numbers") == last
    assert fill(server, store, 8192) == last + 1


def test_pending_appends_are_bounded(server: Server) -> None:
    store = server.start(credit_bytes=20_000, readers=ScriptedReaders({"numbers": 0}))
    store.create(spec(NUMBERS, quota="256KiB"))
    store.create(spec(NUMBERS, name="other"))
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
    readers = ScriptedReaders({"numbers": 0})
    store = server.start(max_disk_bytes=1_000_000, readers=readers)
    store.create(spec(NUMBERS, retention={"bytes": "512KiB"}))
    store.create(spec(NUMBERS, name="free", quota="100MB"))
    fill(server, store, 900_000)
    assert store.credit("p", "numbers")
    while store.credit("p", "numbers"):
        fill(server, store, 8192)
    with pytest.raises(StorageFull, match="all streams together have") as caught:
        store.offer(None, "numbers", 0, numbers(*range(9000)), 50, parks=False)
    assert caught.value.code == "disk_limit"
    readers.positions.clear()
    server.clock.advance(seconds=2)
    store.maintain()
    assert store.credit("p", "numbers")
