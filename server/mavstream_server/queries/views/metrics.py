"""Metrics cache: the engine's metrics of queries, requested at most twice a second, and their API forms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from mavstream_protocol.instants import format_instant
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.query_run import QueryRun
from mavstream_protocol.wire.resources import LatencySummary, OperatorInfo, QueryInfo
from mavstream_server.core.metrics import (
    ClassMetrics,
    EngineMetrics,
    EngineReport,
    OperatorMetrics,
    QueryMetrics,
)
from mavstream_server.queries.query import Query
from mavstream_server.queries.views.delivery import Durability, checkpoint_info
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable

FRESH_S = 0.5
_MAX_CACHED = 10_000


class MetricsSource(Protocol):
    """Source of metrics: the link to the engine."""

    async def metrics(self, ids: Iterable[str] | None = None) -> EngineReport:
        """Return the metrics of these queries, or of all."""

    async def engine_metrics(self) -> EngineMetrics:
        """Return the metrics of the engine itself."""

    async def class_metrics(self) -> dict[str, ClassMetrics]:
        """Return the metrics of the classes that have queries."""


class Overview(NamedTuple):
    """Metrics of the engine and its classes; empty without an engine."""

    engine: EngineMetrics | None = None
    classes: Mapping[str, ClassMetrics] = {}


class MetricsCache:
    """Caches the metrics of queries; returned metrics are at most half a second old."""

    def __init__(self, source: MetricsSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: dict[str, tuple[float, QueryMetrics | None]] = {}
        self._lock = asyncio.Lock()
        self._overview: tuple[float, Overview] | None = None
        self._overview_lock = asyncio.Lock()

    async def overview(self) -> Overview:
        """Return the metrics of the engine and of its classes."""
        async with self._overview_lock:
            if self._overview is None or self._overview[0] <= self._clock() - FRESH_S:
                try:
                    found = Overview(await self._source.engine_metrics(), await self._source.class_metrics())
                except (EngineUnavailable, EngineRefused):
                    found = Overview()
                # Collecting them takes long with thousands of queries, so the age counts from the answer.
                self._overview = self._clock(), found
            return self._overview[1]

    async def of(self, ids: Iterable[str]) -> dict[str, QueryMetrics]:
        """Return the metrics of queries; those that the engine does not run are left out."""
        wanted = tuple(ids)
        async with self._lock:
            oldest = self._clock() - FRESH_S
            stale = [id_ for id_ in wanted if self._known.get(id_, (oldest, None))[0] <= oldest]
            if stale:
                await self._fetch(stale)
        found = ((id_, self._known.get(id_)) for id_ in wanted)
        return {id_: known[1] for id_, known in found if known is not None and known[1] is not None}

    async def _fetch(self, ids: list[str]) -> None:
        try:
            stats = (await self._source.metrics(ids)).queries
        except EngineUnavailable:
            stats = {}
        now = self._clock()
        if len(self._known) > _MAX_CACHED:
            self._known.clear()
        self._known.update((id_, (now, stats.get(id_))) for id_ in ids)

    def forget(self, id_: str) -> None:
        """Drop the metrics of a query that changed or was removed."""
        self._known.pop(id_, None)


def describe(
    query: Query,
    stats: QueryMetrics | None,
    results: int,
    durability: Durability,
    read_by: Iterable[Query] = (),
    held_by: str | None = None,
    run: QueryRun | None = None,
) -> QueryInfo:
    """Return a query in its API form; without metrics, `results` is its number of results."""
    record = query.record
    current = stats if stats is not None and stats.epoch == query.epoch else None
    counters = {} if current is None else current.counters
    checkpoint = None if current is None else current.checkpoint
    return QueryInfo(
        id=query.id,
        spec=record.spec,
        fields=field_specs(query.schema),
        desired=record.desired,
        state=query.state,
        reason=query.reason,
        epoch=query.epoch,
        revision=query.revision,
        seam=query.seam,
        created=format_instant(record.created_us),
        results=results if current is None else current.offset,
        owner=query.owner,
        latency_ms=None if current is None else latency_summary(current),
        memory_bytes={} if current is None else memory(current),
        late=_total(counters, "late"),
        missed=_total(counters, "missed"),
        counters=counters,
        checkpoint=None if checkpoint is None else checkpoint_info(checkpoint, time.time_ns() // 1000),
        delivery=durability.delivery(query.state, current, outside=query.outside),
        run=run,
        reads=tuple(sorted(query.upstream.values())),
        read_by=tuple(one.id for one in read_by),
        held_by=held_by,
    )


def _total(counters: dict[str, dict[str, int]], reason: str) -> int:
    return sum(of.get(reason, 0) for of in counters.values())


def latency_summary(stats: QueryMetrics) -> LatencySummary:
    """Return the latency of a query's answers since it was last started."""
    summary = stats.latency.summary()
    return LatencySummary(
        count=stats.latency.count, **{name: summary[name] for name in ("mean", "p50", "p95", "p99", "max")}
    )


def memory(stats: QueryMetrics) -> dict[str, int]:
    """Return the bytes that a query holds: queued, state and backlog."""
    return {"queued": stats.queued_bytes, "state": stats.state_bytes, "backlog": stats.backlog_bytes}


def operator_info(stats: OperatorMetrics) -> OperatorInfo:
    """Return an operator in its API form."""
    return OperatorInfo(
        name=stats.name,
        operator=stats.operator,
        state=stats.state,
        queued=stats.queued,
        cost_per_tuple_us=stats.cost_per_tuple_ns / 1000,
        selectivity=stats.selectivity,
        tuple_bytes=stats.tuple_bytes,
        tuples=stats.tuples,
        counters=stats.counters,
        sharers=stats.sharers,
        shared_with=stats.shared_with,
    )
