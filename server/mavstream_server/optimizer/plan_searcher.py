"""Plan searcher: searches for cheaper plans of running queries, in a process of its own.

Generating and costing plans takes tens of milliseconds of CPU time per query, which would block the event
loop or an engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from mavstream_protocol.errors import MavstreamError
from mavstream_server.core.event_loop.side_process import SideProcess, SideProcessDied
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.optimizer.running_plans import SearchedQuery
from mavstream_server.planning.rewriting.choice import PlanChoice, choose
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.scheduling.statistics import Statistics

_log = logging.getLogger("mavstream.optimizer")

FRESH_S = 10.0
"""Seconds after which a query is searched again, because its metrics have changed by then."""
PAUSE_S = 5.0
"""Seconds between two searches: at 50 ms each, they take 1 % of a core."""

_NICENESS = 10

FindQueries = Callable[[Iterable[str]], Awaitable[list[SearchedQuery]]]


class _Seen(NamedTuple):
    at: float
    epoch: int
    version: int
    rows: Mapping[str, int]
    """Rows read so far, by source."""


class PlanSearcher:
    """Finds the cheapest equivalent plans of the given queries."""

    def __init__(self, find_queries: FindQueries, clock: Callable[[], float] = time.monotonic) -> None:
        """`find_queries` returns running queries by id, as `QueryViews.searched` does."""
        self._find_queries = find_queries
        self._clock = clock
        self._process = SideProcess(_NICENESS)
        self._seen: dict[str, _Seen] = {}
        self._searched_at: dict[str, float] = {}  # time of the last search, by query
        self._next_search = 0.0  # earliest time of the next search
        self._lock = asyncio.Lock()
        self.alternates: dict[str, PlanChoice] = {}
        """The cheapest plan found, by query; only for plans that still run."""
        self.migrating: frozenset[str] = frozenset()
        """Of the queries of the last search, those with a migration under way."""

    async def search(self, ids: Iterable[str]) -> Mapping[str, PlanChoice]:
        """Update the known alternates of these queries and return `alternates`; to be called periodically.

        Metrics are differences between two calls, and each call searches plans for at most one query. Results
        for other queries are discarded.
        """
        async with self._lock:
            queries = {query.id: query for query in await self._find_queries(tuple(ids))}
            self.migrating = frozenset(
                id_ for id_, query in queries.items() if query.metrics.migration is not None
            )
            for known in (self.alternates, self._seen, self._searched_at):
                for absent in [id_ for id_ in known if id_ not in queries]:
                    del known[absent]
            measured = {id_: self._measured(query) for id_, query in queries.items()}
            due = [id_ for id_ in queries if id_ not in self.migrating and self._due(id_)]
            # Queries that were never searched go first, in the given order.
            for id_ in sorted(due, key=lambda id_: self._searched_at.get(id_, 0.0)):
                metrics = measured[id_]
                if metrics is not None and self._clock() >= self._next_search:
                    await self._choose(queries[id_], metrics)
        return self.alternates

    async def stop(self) -> None:
        """Stop the search process, if it runs."""
        await self._process.stop()

    def _due(self, id_: str) -> bool:
        return id_ not in self._searched_at or self._clock() - self._searched_at[id_] >= FRESH_S

    def _measured(self, query: SearchedQuery) -> PlanMetrics | None:
        """Return the metrics since the last call, or None if there is no basis for them yet."""
        metrics, now, before = query.metrics, self._clock(), self._seen.get(query.id)
        rows = {one.name: one.rows_out for one in metrics.operators if one.name in query.sources}
        seen = _Seen(now, metrics.epoch, metrics.plan_version, rows)
        if before is None or (before.epoch, before.version) != (seen.epoch, seen.version):
            # The plan has changed: earlier results are for another one.
            self._seen[query.id] = seen
            self.alternates.pop(query.id, None)
            self._searched_at.pop(query.id, None)
            return None
        if now - before.at < FRESH_S / 10:
            return None
        if now - before.at >= FRESH_S:
            self._seen[query.id] = seen
        rates: dict[str, float] = {}
        for name, stream in query.sources.items():
            rate = (rows.get(name, 0) - before.rows.get(name, 0)) / (now - before.at)
            rates[stream] = max(rate, rates.get(stream, 0.0))
        return PlanMetrics(rates, operator_metrics(metrics)) if any(rates.values()) else None

    async def _choose(self, query: SearchedQuery, metrics: PlanMetrics) -> None:
        self._searched_at[query.id] = self._clock()
        self._next_search = self._clock() + PAUSE_S
        try:
            found = await self._process.run(choose, query.subject, metrics)
        except SideProcessDied:
            _log.warning("the process that searches for plans died; the next search starts another one")
        except MavstreamError as error:  # a stream or table has changed meanwhile
            _log.info("no plans were searched", extra={"query": query.id, "reason": str(error)})
        else:
            self.alternates[query.id] = found


def operator_metrics(metrics: QueryMetrics) -> dict[str, Statistics]:
    """Return the statistics of a query's operators, by node."""
    return {
        one.name: Statistics(
            cost_per_tuple=one.cost_per_tuple_ns, selectivity=one.selectivity, tuples=one.tuples
        )
        for one in metrics.operators
        if one.kind == "operational"
    }
