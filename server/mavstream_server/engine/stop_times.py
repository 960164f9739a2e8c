"""Stop times: queries with a `stop_at` end by the clock where no row behind it says so."""

from __future__ import annotations

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.states import QueryState

_GRACE = 1_000_000_000  # ns after `stop_at` in which rows stamped before it may still come


class StopTimes:
    """The queries of an engine that have a time to stop at."""

    def __init__(self) -> None:
        self._queries: set[RunningQuery] = set()

    def __len__(self) -> int:
        return len(self._queries)

    def add(self, query: RunningQuery) -> None:
        """Watch over a query, if it has a time to stop at."""
        if query.request.options.stop_at is not None:
            self._queries.add(query)

    def forget(self, query: RunningQuery) -> None:
        """Watch over a query no more: it has ended."""
        self._queries.discard(query)

    def end_overdue(self, now: int) -> bool:
        """End sources whose time has passed without a row behind it to say so; returns if there were."""
        ended = False
        for query in self._queries:
            stop_at = query.request.options.stop_at
            if stop_at is None or now < stop_at * 1000 + _GRACE:
                continue
            for source in query.network.sources:
                if not source.ended and (query.state is QueryState.PAUSED or not source.behind):
                    source.end(stop_at * 1000)
                    ended = True
        return ended
