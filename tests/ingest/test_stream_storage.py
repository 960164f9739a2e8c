"""Streams and their disk: full, damaged or synced; and a server that is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.services.stream_store import NUMBERS, ReturnedCredit, Server, limited_files, numbers, spec

from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import NotFound, StorageFailed, StorageFull
from mavstream_server.core.event_loop.background import InThreads
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.stream_store import Accepted, Repeated, StreamStore
from mavstream_server.testing import ManualClock


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        yield made


def test_a_stream_whose_files_are_damaged_does_not_stop_the_others(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    store.create(spec(NUMBERS, name="other"))
    server.stop()
    description = server.path / "streams" / "numbers" / "log.json"
    intact = description.read_bytes()
    description.write_bytes(b"rubbish")
    store = server.start()
    with pytest.raises(StorageFailed, match=r"stream 'numbers' cannot be opened .*not a log description"):
        store.offer("p", "numbers", 1, numbers(1), 50)
    assert list(store.failures) == ["numbers"]
    assert store.info("numbers").position == 0
    store.offer("p", "other", 1, numbers(1), 50)
    store.flush()
    assert store.info("other").position == 1
    description.write_bytes(intact)
    server.clock.advance(seconds=2)
    store.maintain()
    assert store.failures == {}


@pytest.mark.parametrize("delivery", ["process", "sync"])
def test_a_full_disk_rejects_frames_and_loses_none(server: Server, delivery: str) -> None:
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
        for handle in (large, behind):
            with pytest.raises(StorageFull, match="stream 'numbers' could not be written, the disk is full"):
                handle.result()
        assert other.result() == Accepted(1, 0, 1)
        # A smaller frame still fits, with the sequence that was rejected.
        small = store.offer("p", "numbers", 2, numbers(2), 50)
        store.flush()
        assert small.result() == Accepted(2, 2, 1)
    finally:
        undo()
    assert store.offer("q", "numbers", 1, numbers(7), 50).result() == Repeated(1, 1)
    store.offer("p", "numbers", 3, numbers(*range(60_000)), 480_000)
    store.flush()
    assert server.values("numbers") == [1, 7, 2, *range(60_000)]


def test_a_stream_that_cannot_be_created_leaves_no_files(server: Server) -> None:
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


def test_a_log_that_cannot_be_reopened_is_retried_later(server: Server) -> None:
    returned = ReturnedCredit()
    store = server.start(producers=returned)
    store.create(spec(NUMBERS))
    store.offer("p", "numbers", 1, numbers(1), 50)
    store.flush()
    undo = limited_files(100_000)  # less than a segment: the log cannot even allocate one
    try:
        lost = store.offer("p", "numbers", 2, numbers(*range(60_000)), 480_000)
        store.flush()
        with pytest.raises(StorageFull):
            lost.result()
        with pytest.raises(StorageFull, match="cannot be opened"):
            store.offer("p", "numbers", 2, numbers(2), 50)
        assert store.credit("p", "numbers") == 0
        server.clock.advance(seconds=2)
        store.maintain()
        assert store.failures
    finally:
        undo()
    server.clock.advance(seconds=2)
    store.maintain()
    assert returned.streams == ["numbers"]
    assert store.credit("p", "numbers")
    store.offer("p", "numbers", 2, numbers(2), 50)
    store.flush()
    assert server.values("numbers") == [1, 2]


def test_with_sync_delivery_acks_wait_for_the_disk_and_later_frames_share_the_next_sync(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        background = InThreads(loop)
        settings = Settings(data=tmp_path, delivery="sync")
        catalog = Catalog(settings.catalog_file)
        store = StreamStore(settings, catalog, SystemClock(), timers=loop, background=background)
        store.create(spec(NUMBERS))
        first = store.offer("p", "numbers", 1, numbers(1), 50)
        store.flush()
        assert store.info("numbers").position == 1  # readers see it
        assert not first.settled  # and its producer waits
        assert store.last_sequence("p", "numbers") == 0
        again = store.offer("p", "numbers", 1, numbers(1), 50)
        outcomes = await asyncio.wait_for(
            asyncio.gather(*(store.enqueuer.ingest("p", "numbers", n, numbers(n), 50) for n in range(2, 50))),
            10,
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


KILLED = """
import json, sys
from pathlib import Path
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.tuples import decode_columns
from mavstream_server.core.clock import SystemClock
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.stream_store import StreamStore

settings = Settings(data=Path(sys.argv[1]))
catalog = Catalog(settings.catalog_file)
store = StreamStore(settings, catalog, SystemClock())
spec = StreamSpec.model_validate_json(sys.argv[2])
if spec.name not in store:
    store.create(spec)
schema = spec.schema()
acked = {}
def done(handle):
    acked[handle.producer] = handle.result().sequence
sent = {p: store.last_sequence(p, spec.name) for p in ("p", "q", "r")}
while True:
    for _ in range(7):
        for p in sent:
            sent[p] += 1
            store.offer(p, spec.name, sent[p], decode_columns(schema, {"n": [sent[p]] * 3}), 50, done=done)
    store.flush()
    store.maintain()
    sys.stdout.write(json.dumps(acked) + "\\n")
    sys.stdout.flush()
"""


def test_a_killed_server_has_every_acked_row_and_continues(server: Server) -> None:
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
