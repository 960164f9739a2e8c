"""Retention of table versions: removes those that were current before all retained rows arrived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import ServiceError
from mavstream_server.log import LogError, LogReader
from mavstream_server.tables.oldest_results import OldestResults
from mavstream_server.tables.store import TableStore, obsolete

PERIOD = 1_000_000_000
"""The interval at which versions are checked, in nanoseconds."""


class Streams(Protocol):
    """The streams whose rows may be joined with tables."""

    @property
    def names(self) -> Iterable[str]:
        """The names of all streams."""

    def oldest_waiting(self) -> int | None:
        """Return the lowest arrival time (ns) of the rows queued for append; None if there are none."""

    def first_segment(self, name: str) -> int | None:
        """Return the serial number of a stream's oldest segment, or None if it has no rows."""


class JoinNeed(Protocol):
    """What queries have read or will read that is still to be joined with a table."""

    @property
    def arrival(self) -> int | None:
        """The lowest arrival time (ns) of the rows inside of queries; None if there are none."""

    @property
    def unread(self) -> Mapping[str, int]:
        """The offset of the first result that is to be read, by the id of the query that gave it."""


class Engines(Protocol):
    """The engines whose queries join tables."""

    async def table_need(self, table: str) -> JoinNeed:
        """Return what queries may still join with a table.

        Raises ServiceError while not all queries that are to run do.
        """


class TableRetention:
    """Removes versions that no row needs: not in the logs of streams, in queries, or in results to be read.

    Rows in the log of a stream count whether a query reads them or not, because a new query may start with
    the earliest. Results count until the queries that will join them, directly or through others, have read
    them.
    """

    def __init__(
        self,
        directory: Path,
        results: Path,
        tables: TableStore,
        streams: Streams,
        engines: Engines,
        clock: Clock,
    ) -> None:
        """`directory` contains the logs of the streams, `results` those of results."""
        self._directory = directory
        self._results = OldestResults(results)
        self._tables = tables
        self._streams = streams
        self._engines = engines
        self._clock = clock
        self._checked_at = clock.monotonic()
        self._first: dict[str, tuple[int, int | None]] = {}  # by stream: first segment, arrival in it

    async def run(self) -> None:
        """Remove versions if a check is due; called often."""
        if self._clock.monotonic() - self._checked_at >= PERIOD:
            self._checked_at = self._clock.monotonic()
            for name in self._tables.names:
                await self._apply(name)
            self._results.trim()

    async def _apply(self, name: str) -> None:
        versions, before = self._tables.versions(name), self._oldest_row()
        if len(versions) < 2 or not obsolete(versions, before):
            return
        try:
            need = await self._engines.table_need(name)
        except ServiceError:
            return
        read = [await self._results.arrival(id_, offset) for id_, offset in need.unread.items()]
        # The rows of streams again: queries and rows may have been added while the engine answered. Those
        # from before may have been read and removed since.
        found = (before, need.arrival, *read, self._oldest_row())
        if name in self._tables.schemas():
            oldest = min((arrival for arrival in found if arrival is not None), default=None)
            self._tables.forget_before(name, oldest)

    def _oldest_row(self) -> int | None:
        """Return the lowest arrival time (ns) of all rows in logs or queued for append, or None."""
        names = self._streams.names
        self._first = {stream: known for stream, known in self._first.items() if stream in names}
        found = [self._first_arrival(stream) for stream in names]
        found.append(self._streams.oldest_waiting())
        return min((arrival for arrival in found if arrival is not None), default=None)

    def _first_arrival(self, stream: str) -> int | None:
        serial = self._streams.first_segment(stream)
        if serial is None:
            return None
        known = self._first.get(stream)
        if known is None or known[0] != serial:
            try:
                reader = LogReader(self._directory / stream)
                arrival = reader.cursor(reader.begin).next_arrival
            except (LogError, OSError):
                return 0  # unreadable: any version may be needed
            known = self._first[stream] = serial, arrival
        return known[1]
