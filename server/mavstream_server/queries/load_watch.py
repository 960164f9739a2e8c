"""Load watch: samples the engine's metrics and the streams' arrivals every two seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.load import Arrivals, LoadSample, SlidingLoad
from mavstream_server.queries.query import Query
from mavstream_server.queries.views.metrics import MetricsCache

_log = logging.getLogger("mavstream.load")

_PERIOD_S = 2.0
_MIN_IDLE_RATIO = 100
"""Sampling takes at most one part in so many of the time: with thousands of queries it is less frequent."""
_LEARNED_PER_SAMPLE = 20
"""Number of queries whose operator costs are learned per sample, in rotation."""

Running = Callable[[str | None, int], Sequence[Query]]


class LoadWatch:
    """Recent load of classes, streams and operators; reading it never waits for the engine."""

    def __init__(
        self,
        metrics: MetricsCache,
        streams: StreamStore,
        running: Running,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`running` returns up to a number of queries that the engine runs, after a given id."""
        self._metrics = metrics
        self._streams = streams
        self._running = running
        self._clock = clock
        self._last_learned: str | None = None
        self._sampling_s = 0.0  # seconds that the last request for metrics took
        self.load = SlidingLoad()
        self.experience = CostHistory()
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
        self.load.add(LoadSample(engine.uptime_ns / 1e9, engine, classes, self._arrivals()))
        await self._learn()

    def rates(self, streams: frozenset[str]) -> dict[str, Arrivals]:
        """Return the arrivals per second by stream; streams not observed for long enough are left out."""
        found = {name: self.load.arrivals(name) for name in streams}
        return {name: arrivals for name, arrivals in found.items() if arrivals is not None}

    def _arrivals(self) -> dict[str, Arrivals]:
        counts = {name: self._streams.counts(name) for name in self._streams.names}
        return {name: Arrivals(count.rows, count.frames) for name, count in counts.items()}

    async def _learn(self) -> None:
        """Learn the operator costs of some queries."""
        queries = self._running(self._last_learned, _LEARNED_PER_SAMPLE)
        self._last_learned = queries[-1].id if len(queries) == _LEARNED_PER_SAMPLE else None
        stats = await self._metrics.of(query.id for query in queries)
        for query in queries:
            rates = {name: one.rows for name, one in self.rates(query.streams).items() if one.rows}
            found = stats.get(query.id)
            plan = None if found is None or query.large else query.plan_of(found)
            if found is not None and plan is not None and len(rates) == len(query.streams):
                self.experience.learn(plan, found.operators, rates)
