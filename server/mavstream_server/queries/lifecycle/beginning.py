"""Beginning of queries: from which rows on they read, at registration or at their start time."""

from __future__ import annotations

from mavstream_protocol.queries import ReadFrom
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.queries.lifecycle.placement import Placement
from mavstream_server.queries.lifecycle.start_times import StartTimes
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.runs.service import QueryRuns
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.results.service import ResultService


class QueryBeginning:
    """Fixes the start positions of queries and has them placed."""

    def __init__(
        self,
        registry: QueryRegistry,
        readers: StreamReaders,
        streams: StreamStore,
        results: ResultService,
        start_times: StartTimes,
        placement: Placement,
        runs: QueryRuns,
    ) -> None:
        self._registry = registry
        self._readers = readers
        self._streams = streams
        self._results = results
        self._start_times = start_times
        self._placement = placement
        self._runs = runs

    async def begin(self, query: Query) -> None:
        """Start a query that is not scheduled."""
        if query.outside:
            self._runs.begin(query, query.record.spec.from_)
            return
        self._hold(query)
        await self._placement.place(query)

    async def begin_early(self, query: Query) -> None:
        """Start a scheduled query before its time."""
        self._unschedule(query)
        await self.begin(query)

    def reschedule(self, query: Query) -> None:
        """Wait for the changed start time of a scheduled query, or have it started if that has passed."""
        if self._start_times.is_ahead(query.record.spec.start_at):
            self._start_times.add(query)
            return
        self._unschedule(query)
        if query.outside:
            self._runs.begin(query, query.record.spec.from_)
            return
        self._hold(query)
        self._placement.place_soon(query)

    def begin_due(self, query: Query) -> None:
        """Start a query whose start time has passed, with the rows that arrived since."""
        self._unschedule(query)
        if query.outside:
            # From its start time on, whatever is stored of the time before.
            self._runs.begin(query, ReadFrom.NOW)
            return
        self._readers.keep(query, self.ends(query))
        self._placement.place_soon(query)

    def _hold(self, query: Query) -> None:
        """Fix the start position of a query that reads from now on, however late the engine starts it."""
        if query.record.spec.from_ is ReadFrom.NOW:
            self._readers.hold(query, self.ends(query))

    def ends(self, query: Query) -> dict[str, int]:
        """Return the positions of the next rows to arrive for a query."""
        ends = {name: self._streams.info(name).position for name in query.streams}
        upstream = {name: self._registry.get(id_) for name, id_ in query.upstream.items()}
        return ends | {name: self._results.of(one).end for name, one in upstream.items()}

    def _unschedule(self, query: Query) -> None:
        self._start_times.forget(query)
        query.scheduled = False
        self._readers.add(query)
        self._registry.note(query)
