"""Queries that killed the engine: counted, and not started again after the second time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mavstream_protocol.wire.resources import ActualState
from mavstream_server.engine.crash_record import Reading
from mavstream_server.queries.lifecycle.finishing import QueryFinisher
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.supervisor.crash import Crash

_log = logging.getLogger("mavstream.queries")

_MOST = 2
_FORGOTTEN_AFTER_S = 3600.0


class QueryCrashes:
    """Counts, by query, how often it killed the engine within an hour, and ends it after the second time."""

    def __init__(
        self,
        registry: QueryRegistry,
        finisher: QueryFinisher,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._finisher = finisher
        self._now_s = now_s
        self._times: dict[str, list[float]] = {}

    def add(self, crash: Crash) -> None:
        """Count a crash against the queries that caused it, and end those that caused another one before."""
        now = self._now_s()
        for id_ in crash.queries:
            query = self._registry.find(id_)
            if query is None or query.final is not None:
                self.forget(id_)
                continue
            times = [at for at in self._times.get(id_, ()) if now - at < _FORGOTTEN_AFTER_S]
            self._times[id_], query.suspect = [*times, now], True
            fields = {"query": id_, "how": crash.how, "count": len(times) + 1}
            _log.error("query killed the engine", extra=fields)
            if len(times) + 1 >= _MOST:
                self._finisher.finish(query, ActualState.FAILED, _reason(query, crash))

    def forget(self, id_: str) -> None:
        """Forget the crashes of a query that was removed, or is to run again."""
        self._times.pop(id_, None)


def _reason(query: Query, crash: Crash) -> str:
    own = {source.stream for source in query.plan.sources} if query.plan is not None else set[str]()
    readings = [reading for reading in crash.readings if reading.stream in own]
    detail = (
        f"query '{query.id}' killed the engine process {_MOST} times within an hour (it {crash.how}) and is "
        "not started again by itself"
    )
    if not readings:
        return f"{detail}; register it again with another plan"
    rows = " and ".join(_rows(reading) for reading in readings)
    skips = " ".join(
        f"--skip-to {reading.stream}={max(reading.stop, reading.start + 1)}" for reading in readings
    )
    return f"{detail}; it was at {rows}: 'mavstream query resume {query.id} {skips}' goes on behind them"


def _rows(reading: Reading) -> str:
    stream, start, stop = reading
    what = f"rows {start} to {stop - 1}" if stop - start > 1 else f"row {start}"
    return f"{what} of stream '{stream}'"
