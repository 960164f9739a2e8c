"""How long versions of tables are kept: while there is a row that arrived in their time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import ServiceError
from mavstream_server.log import LogError, LogReader
from mavstream_server.tables.store import TableStore, obsolete

PERIOD = 1_000_000_000
"""How often versions are looked at, in nanoseconds."""


class Streams(Protocol):
    """What retention must know of the streams that are joined with tables."""

    @property
    def names(self) -> Iterable[str]:
        """The names of all streams."""

    def oldest_waiting(self) -> int | None:
        """Return the lowest arrival of the rows that wait to be appended, in ns; None without such rows."""

    def first_segment(self, name: str) -> int | None:
        """Return the number of a stream's oldest segment, or None if it has no rows."""


class Engines(Protocol):
    """What retention asks the engines."""

    async def table_need(self, table: str) -> int | None:
        """Return the lowest arrival of the rows that queries may still join with a table, in ns.

        Raises ServiceError while it cannot be known.
        """


class TableRetention:
    """Removes versions that no row can need: none in the logs of the streams, none on its way in a query.

    Rows that are in a log count whether a query reads them or not: one may begin with the earliest.
    """

    def __init__(
        self, directory: Path, tables: TableStore, streams: Streams, engines: Engines, clock: Clock
    ) -> None:
        """`directory` is where the logs of the streams are."""
        self._directory = directory
        self._tables = tables
        self._streams = streams
        self._engines = engines
        self._clock = clock
        self._looked = clock.monotonic()
        self._first: dict[str, tuple[int, int | None]] = {}  # by stream: first segment, arrival in it

    async def run(self) -> None:
        """Do what is due; to be called often."""
        if self._clock.monotonic() - self._looked >= PERIOD:
            self._looked = self._clock.monotonic()
            for name in self._tables.names:
                await self._keep(name)

    async def _keep(self, name: str) -> None:
        versions = self._tables.versions(name)
        if len(versions) < 2 or not obsolete(versions, self._oldest_row()):
            return
        try:
            need = await self._engines.table_need(name)
        except ServiceError:
            return
        # Asked again: queries and rows may have come while the engine answered.
        oldest = [arrival for arrival in (need, self._oldest_row()) if arrival is not None]
        if name in self._tables.schemas():
            self._tables.forget_before(name, min(oldest, default=None))

    def _oldest_row(self) -> int | None:
        """Return the lowest arrival in any log or on its way there, or None if there are no rows."""
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
                return 0  # whatever is in it may be needed
            known = self._first[stream] = serial, arrival
        return known[1]
