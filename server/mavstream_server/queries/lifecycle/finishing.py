"""Finishing of queries: records the end in the catalog, releases streams and notifies subscribers."""

from __future__ import annotations

import logging

from mavstream_protocol.wire.resources import ActualState
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.queries.lifecycle.start_times import StartTimes
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.views.metrics import MetricsCache
from mavstream_server.results.service import ResultService

_log = logging.getLogger("mavstream.queries")


class QueryFinisher:
    """Finishes queries that ended by themselves, were stopped, or cannot be started."""

    def __init__(
        self,
        catalog: Catalog,
        registry: QueryRegistry,
        readers: StreamReaders,
        start_times: StartTimes,
        metrics: MetricsCache,
        results: ResultService,
        checkpoints: CheckpointStore,
    ) -> None:
        self._catalog = catalog
        self._registry = registry
        self._readers = readers
        self._start_times = start_times
        self._metrics = metrics
        self._results = results
        self._checkpoints = checkpoints

    def finish(self, query: Query, state: ActualState, reason: str | None = None) -> None:
        """Record how a query ended and wake its subscribers."""
        query.record = self._catalog.set_final(query.id, state.value, reason)
        self._start_times.forget(query)
        query.scheduled = False
        self._registry.note(query)
        self.leave(query)
        self._metrics.forget(query.id)
        self._results.changed(query.id)
        level = logging.WARNING if state is ActualState.FAILED else logging.INFO
        _log.log(level, "query %s", state.value, extra={"query": query.id, "reason": reason})

    def leave(self, query: Query) -> None:
        """Record that the engine does not run a query and never will again."""
        query.placed = query.paused = False
        self._readers.remove(query)
        self._checkpoints.remove(query.id)
