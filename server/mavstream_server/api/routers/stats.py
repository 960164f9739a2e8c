"""Route of statistics of the engine and the query classes."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Depends
from pydantic import ConfigDict

from mavstream_protocol.described import Described
from mavstream_protocol.wire.resources import LatencySummary
from mavstream_server.api.auth import require
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts, Services
from mavstream_server.core.metrics import ClassMetrics, EngineMetrics, Latency
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.optimizer.fairness import ClassFairness
from mavstream_server.queries.views.metrics import Overview

router = APIRouter(prefix="/v1/stats", tags=["server"])
_CONFIG = ConfigDict(frozen=True)
_MEMORY = ("queued", "state", "backlog")
_NOTHING = ClassMetrics(0, 0, 0, 0, 0, 0, Latency())


class EngineShown(Described):
    """Statistics of the engine process."""

    model_config = _CONFIG
    pid: int
    policy: str
    uptime_s: float
    busy_s: float
    """Time spent in slices, in seconds."""
    cpu_s: float
    slices: int
    slice_ms: dict[str, float]
    """Time between two decisions of the scheduler: `p99`, at most twice too long, and `max`."""
    resident_bytes: int
    """Resident memory of the process."""
    memory_bytes: dict[str, int]
    """Memory of all queries: queued, state, backlog. Shared memory counts once."""


class ClassShown(Described):
    """Statistics of the queries of a class since the engine started."""

    model_config = _CONFIG
    priority: int
    queries: int
    rows_in: int
    results: int
    busy_s: float
    """Time spent in slices of the class, in seconds."""
    latency_ms: LatencySummary
    latency_buckets: dict[int, int]
    """Answers by latency: bucket `b` ends at 2 ** ((b + 1) / 8) ns; empty buckets are left out.

    The difference of two requests gives the percentiles of the time between them.
    """
    memory_bytes: dict[str, int]
    """Memory of the class: queued, state, backlog. Shared memory counts once, in one class."""
    inversion_ratio: float | None
    """Mean response time over the last seconds divided by that of `next_class`, the next less important class
    that answered. Above 1 the priorities are inverted. null without answers.
    """
    next_class: str | None
    starved: bool
    """Whether rows waited over the last seconds while the class got no turn."""


class TrafficShown(Described):
    """Rows received since the server started, and repeated frames."""

    model_config = _CONFIG
    received: int
    acked: int
    rejected: int
    repeated: int


class Stats(Described):
    """Statistics of the server."""

    model_config = _CONFIG
    engine: EngineShown | None
    """null while the engine is starting."""
    engine_restarts: int
    classes: dict[str, ClassShown]
    tuples: TrafficShown
    streams: int
    producers: int
    subscribers: int
    connections: int


@router.get("", dependencies=[Depends(require())], responses=documented())
async def stats(parts: Parts) -> Stats:
    """Get the statistics of the engine and of each query class."""
    totals, classes = await parts.queries.metrics.overview() if parts.link.ready else Overview()
    return Stats(
        engine=None if totals is None else _engine(totals, classes),
        engine_restarts=parts.link.restarts,
        classes=_classes(parts, classes, {} if totals is None else totals.class_busy_ns),
        tuples=_traffic(parts.traffic),
        streams=len(parts.streams.names),
        producers=parts.producers.count,
        subscribers=parts.results.subscribers,
        connections=parts.connections.open,
    )


def _engine(totals: EngineMetrics, classes: Mapping[str, ClassMetrics]) -> EngineShown:
    held = [_memory(stats) for stats in classes.values()]
    return EngineShown(
        pid=totals.pid,
        policy=totals.policy,
        uptime_s=totals.uptime_ns / 1e9,
        busy_s=totals.busy_ns / 1e9,
        cpu_s=totals.cpu_ns / 1e9,
        slices=totals.slices,
        slice_ms={"p99": totals.slice_p99_ns / 1e6, "max": totals.longest_slice_ns / 1e6},
        resident_bytes=totals.resident_bytes,
        memory_bytes={kind: sum(one[kind] for one in held) for kind in _MEMORY},
    )


def _classes(
    parts: Services, metrics: Mapping[str, ClassMetrics], busy_ns: Mapping[str, int]
) -> dict[str, ClassShown]:
    known = {record.spec.name: record.spec.priority for record in parts.catalog.classes()}
    fairness = parts.queries.fairness()
    return {
        name: _class(priority, metrics.get(name, _NOTHING), busy_ns.get(name, 0), fairness[name])
        for name, priority in known.items()
    }


def _class(priority: int, stats: ClassMetrics, busy_ns: int, fairness: ClassFairness) -> ClassShown:
    return ClassShown(
        priority=priority,
        queries=stats.queries,
        rows_in=stats.rows_in,
        results=stats.rows_out,
        busy_s=busy_ns / 1e9,
        latency_ms=LatencySummary.model_validate(stats.latency.summary()),
        latency_buckets=dict(stats.latency.buckets),
        memory_bytes=_memory(stats),
        inversion_ratio=fairness.inversion_ratio,
        next_class=fairness.next_class,
        starved=fairness.starved,
    )


def _memory(stats: ClassMetrics) -> dict[str, int]:
    return {kind: getattr(stats, f"{kind}_bytes") for kind in _MEMORY}


def _traffic(traffic: Traffic) -> TrafficShown:
    return TrafficShown(
        received=traffic.received.total(),
        acked=traffic.acked.total(),
        rejected=traffic.rejected.total(),
        repeated=traffic.repeated.total(),
    )
