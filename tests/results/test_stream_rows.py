"""Rows of streams for clients: page by page, across retention and damage, between other work."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.damaged_files import flip, frame_offsets
from tests.support.services.stream_store import EVENTS, NUMBERS, Server, events, numbers, spec

from mavstream_protocol.instants import parse_instant
from mavstream_protocol.tuples import decode_rows, decode_stream, rows_of
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Conflict
from mavstream_server.core.event_loop.background import Done, Work
from mavstream_server.core.event_loop.work_queue import WorkQueue
from mavstream_server.core.importance import AllEqual
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.log import FrameKind
from mavstream_server.results.encoding import CHUNK_ROWS, ResultFormat
from mavstream_server.results.stream_rows import PositionAhead, StreamRows
from mavstream_server.testing import ManualClock

ROWS, ARROW = ResultFormat.ROWS, ResultFormat.ARROW
Test = Callable[[StreamRows], Awaitable[None]]


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        yield made


def served(server: Server, store: StreamStore, test: Test, **options: int) -> None:
    async def main() -> None:
        work = WorkQueue(AllEqual(), SystemClock(), asyncio.get_running_loop(), **options)
        await test(StreamRows(store.readable, work, server.clock))

    asyncio.run(main())


async def page(
    rows: StreamRows, name: str = "numbers", after: int | None = None, limit: int = 1_000
) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await rows.page(name, after, limit, ROWS)).json())
    return found


async def values(rows: StreamRows, after: int | None = None, limit: int = 1_000) -> list[int]:
    return [row["n"] for row in (await page(rows, after=after, limit=limit))["rows"]]


def append(store: StreamStore, *batches: Any, stream: str = "numbers") -> None:
    for batch in batches:
        store.offer(None, stream, 0, batch, batch.nbytes)
        store.flush()


def test_reading_page_by_page_returns_every_row_once(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    start = 0
    for size in (1, 999, 1, 3_000, 6_500, 2):
        append(store, numbers(*range(start, start + size)))
        start += size

    async def test(rows: StreamRows) -> None:
        got: list[int] = []
        after: int | None = None
        while (part := await page(rows, after=after, limit=777))["rows"]:
            got += [row["n"] for row in part["rows"]]
            assert (part["next"], part["end"], part["gap"]) == (got[-1], 10_503, None)
            after = part["next"]
        assert got == list(range(10_503))
        append(store, numbers(10_503))
        assert await values(rows, after) == [10_503]
        assert await values(rows, 4_000, 3) == [4_001, 4_002, 4_003]
        with pytest.raises(PositionAhead, match=r"up to position 10503, and rows after 10504"):
            await page(rows, after=10_504)

    served(server, store, test)


def test_both_encodings_have_the_same_rows(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    append(store, *(events(n, n + 1, home=f"h{n}") for n in range(300)), stream="events")
    append(store, decode_rows(spec(EVENTS).schema(), [{"at": 9, "home": None}]), stream="events")

    async def test(rows: StreamRows) -> None:
        arrow = (await rows.page("events", 5, 100_000, ARROW)).rows.arrow()
        found = rows_of(decode_stream(spec(EVENTS).schema(), arrow))
        assert found == (await page(rows, "events", 5, 100_000))["rows"]
        assert len(found) == 601 - 6
        assert found[-1] == {"at": "1970-01-01T00:00:00.000009Z", "home": None}
        empty = (await rows.page("events", 600, 10, ARROW)).rows.arrow()
        assert decode_stream(spec(EVENTS).schema(), empty).num_rows == 0

    served(server, store, test)


def test_metadata_has_the_watermark_of_each_row_wherever_a_page_begins(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS, lateness="2us"))
    expected: list[tuple[int, int, int | None]] = []  # time, arrival in us, watermark
    latest: dict[str, int] = {}
    known: int | None = None
    sent = [("p", (10, 14)), ("q", (11, 9)), ("p", (30, 12)), ("q", (17, 13))]
    for turn, (producer, times) in enumerate(sent):
        server.clock.advance(seconds=1)
        store.offer(producer, "events", turn // 2 + 1, events(*times), 8)
        store.flush()
        for time in times:
            expected.append((time, server.clock.now() // 1000, known))
            latest[producer] = max(latest.get(producer, 0), time)
            # It is the least of what the producers have sent so far, and never decreases.
            known = max(known or 0, min(latest.values()) - 2)

    async def test(rows: StreamRows) -> None:
        for after in (None, 0, 2, 4):
            for limit in (1, 3, 100):
                found = json.loads((await rows.page("events", after, limit, ROWS, metadata=True)).json())[
                    "rows"
                ]
                start = 0 if after is None else after + 1
                assert [row["_position"] for row in found] == list(range(start, min(start + limit, 8)))
                names = ("_time", "_arrival", "_watermark")
                got = [[row[name] and parse_instant(row[name]) for name in names] for row in found]
                assert got == [list(row) for row in expected[start : start + limit]], (after, limit)
        none = await page(rows, "events", 3, 0)
        assert (none["rows"], none["next"], none["end"]) == ([], 3, 8)
        assert (await page(rows, "events", None, 0))["next"] == -1

    served(server, store, test)


def test_a_field_named_as_metadata_is_told(server: Server) -> None:
    store = server.start()
    store.create(spec({"name": "numbers", "fields": [{"name": "_time", "type": "int"}]}))

    async def test(rows: StreamRows) -> None:
        with pytest.raises(Conflict, match="stream 'numbers' has a field '_time'") as caught:
            await rows.page("numbers", None, 1, ROWS, metadata=True)
        assert caught.value.code == "metadata_name_taken"

    served(server, store, test)


def test_a_page_is_limited_in_bytes(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    append(store, *(events(*range(20), home=f"{n:0100000}") for n in range(10)), stream="events")

    async def test(rows: StreamRows) -> None:
        count, after = 0, None
        while (found := await page(rows, "events", after, 100_000))["rows"]:
            assert 8 << 20 <= sum(len(row["home"]) for row in found["rows"]) + (2 << 20) <= 12 << 20 or (
                found["next"] == 199
            )
            count += len(found["rows"])
            after = found["next"]
            assert after == count - 1
        assert count == 200

    served(server, store, test)


def test_removed_rows_are_told_as_a_gap(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS, retention={"bytes": "128KiB"}))
    append(store, numbers(*range(1_000)))

    async def test(rows: StreamRows) -> None:
        assert await values(rows, 8, 1) == [9]
        for begin in range(1_000, 100_000, 1_000):
            append(store, numbers(*range(begin, begin + 1_000)))
            server.clock.advance(seconds=2)
            store.maintain()
        begin = store.info("numbers").begin
        assert begin > 10_000
        part = await page(rows, after=500, limit=3)
        assert (part["gap"], part["gap_reason"]) == ([501, begin], "retention")
        assert [row["n"] for row in part["rows"]] == [begin, begin + 1, begin + 2]
        assert await values(rows, limit=1) == [begin]
        # A reader in the middle of a segment that is removed reads it to its end.
        got, after = [], 9
        while not (part := await page(rows, after=after, limit=700))["gap"]:
            got += [row["n"] for row in part["rows"]]
            after = part["next"]
        assert got == list(range(10, after + 1))
        assert part["gap"] == [after + 1, begin]
        assert part["rows"][0]["n"] == begin

    served(server, store, test)


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 100])
def test_damaged_rows_are_told_as_a_gap_between_two_pages(server: Server, limit: int) -> None:
    server.start().create(spec(NUMBERS))
    append(server.store, *(numbers(n) for n in range(10)))
    server.stop()
    file, offset, length = frame_offsets(server.path / "streams" / "numbers")[4]
    flip(file, offset + length - 1)
    store = server.start()

    async def test(rows: StreamRows) -> None:
        got, gaps, after = [], [], None
        while (part := await page(rows, after=after, limit=limit))["next"] != after:
            got += [row["n"] for row in part["rows"]]
            gaps += [part["gap"]] if part["gap"] else []
            after = part["next"]
        assert (got, gaps) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], [[4, 5]])

    served(server, store, test)


def test_the_end_and_the_watermark_are_those_of_one_moment(server: Server) -> None:
    store = server.start()
    store.create(spec({**EVENTS, "lateness": "1s"}))

    async def test(rows: StreamRows) -> None:
        empty = await page(rows, "events")
        assert (empty["rows"], empty["next"], empty["end"]) == ([], -1, 0)
        assert (empty["watermark"], empty["complete"]) == (None, False)
        store.offer("p", "events", 1, events(5_000_000), 50)
        store.flush()
        first = await page(rows, "events", -1)
        assert (first["end"], first["watermark"]) == (1, "1970-01-01T00:00:04.000000Z")
        store.complete("events")
        store.flush()
        last = await page(rows, "events", first["next"])
        assert (last["rows"], last["next"], last["complete"]) == ([], 0, True)

    served(server, store, test)


def test_marks_are_passed(server: Server) -> None:
    store = server.start()
    store.create(spec(EVENTS))
    append(store, events(1), stream="events")
    writer = store.readable("events")
    for _ in range(600):
        writer.mark(FrameKind.IDLE, server.clock.now())
    append(store, events(2), stream="events")

    async def test(rows: StreamRows) -> None:
        assert len((await page(rows, "events"))["rows"]) == 2
        assert len((await page(rows, "events", 0))["rows"]) == 1

    served(server, store, test)


def test_a_stream_that_was_created_again_has_its_own_rows(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    append(store, numbers(1, 2))

    async def test(rows: StreamRows) -> None:
        assert await values(rows) == [1, 2]
        store.remove("numbers")
        store.create(spec(NUMBERS))
        append(store, numbers(3))
        assert await values(rows) == [3]

    served(server, store, test)


def test_other_work_runs_while_a_page_is_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK_ROWS, ResultFormat.ARROW, 500)
    store = server.start()
    store.create(spec(NUMBERS))
    append(store, *(numbers(*range(1_000)) for _ in range(50)))

    async def test(rows: StreamRows) -> None:
        turns = 0
        reading = asyncio.ensure_future(page(rows, limit=50_000))
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(reading.result()["rows"]) == 50_000
        assert turns >= 50_000 // CHUNK_ROWS[ROWS] - 1

    served(server, store, test, budget=0)


def test_concurrent_readers_get_their_own_rows(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    append(store, *(numbers(*range(n, n + 100)) for n in range(0, 10_000, 100)))

    async def test(rows: StreamRows) -> None:
        starts = [*range(-1, 9_000, 500), -1, 4_999]
        found = await asyncio.gather(*(values(rows, after, 700) for after in starts))
        assert found == [list(range(after + 1, after + 701)) for after in starts]

    served(server, store, test)


def test_files_that_nobody_reads_are_closed(server: Server) -> None:
    store = server.start()
    store.create(spec(NUMBERS))
    append(store, numbers(1, 2, 3))

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(str(server.path / "streams" / "numbers"))

    async def test(rows: StreamRows) -> None:
        before = maps()
        await page(rows, limit=1)
        assert maps() > before
        server.clock.advance(seconds=61)
        rows.expire()
        gc.collect()  # a file is unmapped with the last array over it
        assert maps() <= before
        assert await values(rows, 0) == [2, 3]

    served(server, store, test)


class _SlowDisk:
    """Disk work that waits until a test does it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Work, Done]] = []

    def run(self, work: Work, done: Done) -> None:
        self.waiting.append((work, done))

    def settle(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            work()
            done(None)


def test_with_sync_delivery_rows_are_read_once_the_disk_has_them(server: Server) -> None:
    disk = _SlowDisk()
    store = server.start(delivery="sync", background=disk)
    store.create(spec(NUMBERS))
    append(store, numbers(1, 2))

    async def test(rows: StreamRows) -> None:
        assert (await page(rows))["end"] == 0
        disk.settle()
        append(store, numbers(3))
        found = await page(rows)
        assert ([row["n"] for row in found["rows"]], found["end"]) == ([1, 2], 2)
        disk.settle()
        assert await values(rows, found["next"]) == [3]

    served(server, store, test)
