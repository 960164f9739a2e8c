"""Retention of table versions: removed when no row needs them; broken files are reported."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import READINGS

from mavstream_protocol import StreamSpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_rows
from mavstream_protocol.wire.resources import QueryChange
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.columns.column import Column
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Conflict, NotFound, TooMany, WrongVersion
from mavstream_server.core.settings import Settings
from mavstream_server.engine.process.messages import Hello
from mavstream_server.queries.assembly import assemble
from mavstream_server.supervisor.engine_link import EngineLink, EngineUnavailable
from mavstream_server.tables.index_file import LARGE
from mavstream_server.tables.retention import TableRetention
from mavstream_server.tables.store import TableRows, TableStore
from mavstream_server.tables.stored import StoredTable
from mavstream_server.testing import ManualClock
from mavstream_server.testing.streams import parse_fields

SCHEMA = parse_fields("room string, cap int")
JOIN = {
    "root": "j",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "rooms": {"op": "table", "table": "rooms"},
        "j": {"op": "join", "left": "in", "right": "rooms", "on": [["room", "room"]]},
    },
}
PASSED_ON = {
    "root": "all",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "all": {"op": "select", "input": "in", "where": "temp > 0"},
    },
}
JOIN_RESULTS = {
    "root": "j",
    "nodes": {**JOIN["nodes"], "in": {"op": "source", "query": "passed"}},  # type: ignore[dict-item]
}


def rows(*given: tuple[str, int], schema: Schema = SCHEMA) -> TableRows:
    columns = {f.name: Column.from_list(f.type, [row[n] for row in given]) for n, f in enumerate(schema)}
    return TableRows(schema, columns, len(given))


class Parts:
    """Streams, tables, queries and an engine; all stamps come from a clock that is advanced by hand."""

    def __init__(self, data: Path, checkpoints: int | None = None, **settings: Any) -> None:
        self.settings = Settings(data=data, **settings)
        self.settings.results_directory.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog(self.settings.catalog_file)
        self.link = EngineLink(Hello(data, checkpoint_interval_ns=checkpoints))
        self.clock = clock = ManualClock()
        timers = asyncio.get_running_loop()
        self.parts = assemble(self.settings, self.catalog, self.link, clock, timers=timers)
        self.streams, self.tables, self.queries = self.parts.streams, self.parts.tables, self.parts.queries
        self.retention = TableRetention(
            self.settings.streams_directory,
            self.settings.results_directory,
            self.tables,
            self.streams,
            self.queries,
            clock,
        )
        self.fed = 0

    async def feed(self, count: int = 1) -> None:
        self.clock.advance(nanoseconds=1)
        batch = decode_rows(
            self.streams.spec("readings").schema(),
            [{"at": self.fed + number, "room": "attic", "temp": 1} for number in range(count)],
        )
        self.fed += count
        await self.streams.enqueuer.ingest(None, "readings", 0, batch, 1000)

    async def put(self, *given: tuple[str, int]) -> None:
        self.clock.advance(nanoseconds=1)
        await self.tables.put("rooms", rows(*given))

    async def versions_kept(self) -> list[int]:
        """Run retention once, and return the versions that are left."""
        self.clock.advance(seconds=1)
        await self.retention.run()
        return [version.number for version in self.tables.versions("rooms")]


def run(data: Path, test: Callable[[Parts], Awaitable[None]], stream: Any = None, **settings: Any) -> None:
    async def main() -> None:
        parts = Parts(data, **settings)
        try:
            parts.streams.create(StreamSpec.model_validate({**READINGS, **(stream or {})}))
            await parts.link.start(parts.queries)
            await parts.queries.start()
            await test(parts)
        finally:
            await parts.queries.stop()
            await parts.link.stop()
            parts.parts.close()
            parts.catalog.close()

    asyncio.run(main())


def test_a_version_is_kept_while_a_row_that_arrived_in_its_time_is(tmp_path: Path) -> None:
    async def test(parts: Parts) -> None:
        await parts.put(("attic", 1))
        await parts.put(("attic", 2))
        assert await parts.versions_kept() == [2]  # no row arrived while the first was current
        await parts.feed()
        await parts.put(("attic", 3))
        await parts.feed()
        await parts.put(("attic", 4))
        assert await parts.versions_kept() == [2, 3, 4]
        # Segments of 64 KiB, of which the last two are kept: rows are removed with the first one.
        while parts.streams.info("readings").begin < 2:
            await parts.feed(1000)
            parts.clock.advance(seconds=1)
            parts.streams.maintain()
        assert await parts.versions_kept() == [4]
        assert len(list((tmp_path / "tables" / "rooms").glob("*.version"))) == 1
        assert parts.tables.info("rooms").versions == 1

    run(tmp_path, test, {"retention": {"bytes": "64KiB"}})


def test_a_version_is_kept_while_a_query_that_lags_may_read_results_of_its_time(tmp_path: Path) -> None:
    async def test(parts: Parts) -> None:
        await parts.put(("attic", 1))
        below = await parts.queries.register({"name": "passed", "plan": PASSED_ON})
        above = await parts.queries.register({"name": "joined", "plan": JOIN_RESULTS})
        await parts.feed()
        results = parts.queries.results.of(parts.queries.get(above.id))
        await until(lambda: results.end == 1, "the row to be joined", PATIENCE)
        await parts.put(("attic", 2))
        for _ in range(5):
            await parts.feed(1000)
        passed = parts.queries.results.of(parts.queries.get(below.id))
        await until(lambda: passed.end == parts.fed, "the rows to be read", PATIENCE)
        for state in ("paused", "running"):  # its last checkpoint is behind the rows from now on
            await parts.queries.change(below.id, QueryChange.model_validate({"state": state}))

        await until(lambda: parts.link.needs["readings"].position == 5001, "the checkpoint", PATIENCE)
        while parts.streams.info("readings").begin < 2:
            await parts.feed(1000)
            parts.clock.advance(seconds=1)
            parts.streams.maintain()
        # After a crash the query would read the result once more.
        assert await parts.versions_kept() == [1, 2]
        await parts.queries.change(above.id, QueryChange.model_validate({"state": "paused"}))
        assert await parts.versions_kept() == [2]

    never = 3600 * 1_000_000_000
    run(tmp_path, test, {"retention": {"bytes": "64KiB"}}, checkpoints=never)


def test_no_version_is_removed_before_all_queries_run_again(tmp_path: Path) -> None:
    async def test(parts: Parts) -> None:
        await parts.put(("attic", 1))
        await parts.put(("attic", 2))
        await parts.queries.register({"name": "q", "plan": JOIN})
        os.kill(parts.link.pid or 0, signal.SIGKILL)
        await until(lambda: not parts.link.ready, "the engine's end", PATIENCE)
        await until(lambda: parts.link.ready, "another engine", PATIENCE)
        parts.queries.engine_restarted()
        with pytest.raises(EngineUnavailable, match="not all queries run yet"):
            await parts.queries.table_need("rooms")
        await parts.queries.placement.settled()
        assert await parts.versions_kept() == [2]

    run(tmp_path, test)


def test_without_a_running_engine_no_version_is_removed(tmp_path: Path) -> None:
    async def test(parts: Parts) -> None:
        await parts.put(("attic", 1))
        await parts.put(("attic", 2))
        await parts.link.stop()
        assert await parts.versions_kept() == [1, 2]

    run(tmp_path, test)


def test_a_version_is_stamped_after_the_last_row_that_a_query_may_have_joined(tmp_path: Path) -> None:
    async def test(parts: Parts) -> None:
        await parts.put(("attic", 1))
        info = await parts.queries.register({"name": "q", "plan": JOIN})
        await parts.feed()
        arrival = parts.clock.now()
        results = parts.queries.results.of(parts.queries.get(info.id))
        await until(lambda: results.end == 1, "the row to be joined", PATIENCE)
        parts.clock.advance(seconds=-1000)  # as when the system clock is set back
        await parts.put(("attic", 2))
        assert [version.stamp > arrival for version in parts.tables.versions("rooms")] == [False, True]

    run(tmp_path, test)


def test_large_versions_are_indexed_before_a_query_needs_them(tmp_path: Path) -> None:
    many = [(f"room {number}", number) for number in range(LARGE)]
    folder = tmp_path / "tables" / "rooms"

    def indexed() -> list[int]:
        """Return the versions that an engine finds indexed."""
        table = StoredTable(folder)
        table.refresh()
        versions = [table.version(number) for number in sorted(table.numbers)]
        return [version.number for version in versions if version.index(("room",)).mapped]

    async def test(parts: Parts) -> None:
        await parts.put(*many)
        assert indexed() == []
        await parts.queries.register({"name": "q", "plan": JOIN})
        assert indexed() == [1]
        await parts.feed()
        await parts.put(*many[1:], ("attic", 1))
        assert indexed() == [1, 2]
        await parts.put(("attic", 1))  # small: indexed by the query that uses it
        assert indexed() == [1, 2]
        parts.tables.forget_before("rooms", None)
        assert [file.name[:10] for file in folder.glob("*.index")] == []

    run(tmp_path, test)


def test_the_store_explains_what_it_refuses(tmp_path: Path) -> None:
    async def test(parts: Parts) -> None:
        put = parts.tables.put
        await put("rooms", rows(("attic", 1)), expected=0)
        with pytest.raises(WrongVersion, match="table 'rooms' is at version 1"):
            await put("rooms", rows(("attic", 2)), expected=3)
        with pytest.raises(TooMany, match="one more than the 1 that are allowed"):
            await put("homes", rows(("attic", 1)))
        await put("rooms", rows(("attic", 2)))
        await put("rooms", rows(("attic", 2)))  # the same rows make no new version
        with pytest.raises(TooMany, match="has 2 versions that rows in the streams may still need"):
            await put("rooms", rows(("attic", 3)))
        with pytest.raises(Conflict, match=r"\(room string, cap int\), got \(room string, cap float\)"):
            await put("rooms", rows(("attic", 3), schema=parse_fields("room string, cap float")))
        with pytest.raises(NotFound, match=r"mavstream table put room FILE', or did you mean 'rooms'"):
            parts.tables.info("room")

    run(tmp_path, test, max_tables=1, max_table_versions=2)


@pytest.mark.parametrize("delivery", ["process", "sync"])
def test_tables_are_restored_and_broken_files_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, delivery: Any
) -> None:
    async def test() -> None:
        settings = Settings(data=tmp_path, delivery=delivery)
        first = TableStore(settings, SystemClock())
        for name in ("homes", "rooms"):
            for cap in range(3):
                await first.put(name, rows(("attic", cap), ("ünïcode", -1)))
        before = first.detail("rooms", [])
        first.close()
        broken = sorted((tmp_path / "tables" / "homes").glob("*.version"))[1]
        broken.write_bytes(broken.read_bytes()[:-64])
        second = TableStore(settings, SystemClock())
        assert second.detail("rooms", []) == before
        assert (second.names, second.schemas()) == (("rooms",), {"rooms": SCHEMA})
        second.close()

    asyncio.run(test())
    (record,) = caplog.records
    assert record.message == "damaged file"
    assert "table ignored: " in record.__dict__["reason"]
    assert " bytes, got " in record.__dict__["reason"]
