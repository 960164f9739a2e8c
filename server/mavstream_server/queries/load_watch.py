"""Load watch: samples the engine's metrics and the streams' arrivals every two seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.load import Arrivals, LoadSample, SlidingLoad
from mavstream_server.queries.planning.result_rates import ResultRates
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.views.metrics import MetricsCache

_log = logging.getLogger("mavstream.load")

_PERIOD_S = 2.0
_MIN_IDLE_RATIO = 100
"""Sampling takes at most one part in so many of the time: with thousands of queries it is less frequent."""
_LEARNED_PER_SAMPLE = 20
"""Number of queries whose operator costs are learned per sample, in rotation."""


class LoadWatch:
    """Recent load of classes, streams and operators; reading it never waits for the engine."""

    def __init__(
        self,
        metrics: MetricsCache,
        streams: StreamStore,
        registry: QueryRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._streams = streams
        self._registry = registry
        self._clock = clock
        self._last_learned: str | None = None
        self._sampling_s = 0.0  # seconds that the last request for metrics took
        self.load = SlidingLoad()
        self.experience = CostHistory()
        self.results = ResultRates(
            self.load, self.experience, lambda name: registry.find(registry.id_of(name))
        )
        self.looks = 0
        """Number of samples taken so far."""

    async def run(self) -> None:
        """Sample until cancelled; errors are logged."""
        while True:
            try:
                await self.look()
            except Exception:
                _log.exception("the load could not be looked at")
            await asyncio.sleep(max(_PERIOD_S, _MIN_IDLE_RATIO * self._sampling_s))

    async def look(self) -> None:
        """Take a sample."""
        begun = self._clock()
        engine, classes = await self._metrics.overview()
        self._sampling_s = self._clock() - begun
        self.looks += 1
        if engine is None:
            self.load.forget()
            return
        # By the engine's clock: the metrics may be half a second old.
        rows = {**self._arrivals(), **await self._results()}
        self.load.add(LoadSample(engine.uptime_ns / 1e9, engine, classes, rows))
        await self._learn()

    def rates(self, names: Iterable[str]) -> dict[str, Arrivals]:
        """Return the rows per second by the name of a stream, or of a query whose results are read.

        Streams not observed for long enough are left out, and queries that depend on them.
        """
        return self.results.rates(names)

    def _arrivals(self) -> dict[str, Arrivals]:
        counts = {name: self._streams.counts(name) for name in self._streams.names}
        return {name: Arrivals(count.rows, count.frames) for name, count in counts.items()}

    async def _results(self) -> dict[str, Arrivals]:
        """Return how many results the queries have given that others read."""
        queries = self._registry.upstream()
        stats = await self._metrics.of(query.id for query in queries)
        counts = {query.name: stats[query.id].offset for query in queries if query.id in stats}
        return {name: Arrivals(count, count) for name, count in counts.items()}

    async def _learn(self) -> None:
        """Learn the operator costs of some queries."""
        queries = self._registry.select(self._last_learned, _LEARNED_PER_SAMPLE, placed=True)
        self._last_learned = queries[-1].id if len(queries) == _LEARNED_PER_SAMPLE else None
        stats = await self._metrics.of(query.id for query in queries)
        for query in queries:
            read = query.streams | query.upstream.keys()
            rates = {name: one.rows for name, one in self.rates(read).items() if one.rows}
            found = stats.get(query.id)
            plan = None if found is None or query.large else query.plan_of(found)
            if found is not None and plan is not None and len(rates) == len(read):
                self.experience.learn(plan, found.operators, rates)
