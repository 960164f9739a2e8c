"""Statistics: what the engine does, and what each class gets of it."""

from __future__ import annotations

from collections import defaultdict

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict

from mavstream_protocol.wire.resources import LatencySummary
from mavstream_server.api.auth import require
from mavstream_server.api.figures import engine_stats
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts, Services
from mavstream_server.api.traffic import Traffic
from mavstream_server.engine.figures import EngineStats, EngineTotals, Latency, QueryStats

router = APIRouter(prefix="/v1/stats", tags=["server"])
_CONFIG = ConfigDict(frozen=True, use_attribute_docstrings=True)


class EngineShown(BaseModel):
    """The engine process."""

    model_config = _CONFIG
    pid: int
    policy: str
    uptime_s: float
    busy_s: float
    """Spent in slices."""
    cpu_s: float
    slices: int
    resident_bytes: int


class ClassShown(BaseModel):
    """What the queries of a class did since the engine started."""

    model_config = _CONFIG
    priority: int
    queries: int
    rows_in: int
    results: int
    busy_s: float
    """Spent in slices of the class."""
    latency_ms: LatencySummary
    memory_bytes: dict[str, int]
    """queued, state, backlog."""


class TrafficShown(BaseModel):
    """Rows that came since the server started."""

    model_config = _CONFIG
    received: int
    acked: int
    rejected: int
    repeated: int


class Stats(BaseModel):
    """The server at one time."""

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
    """Show engine totals and figures per class."""
    figures = await engine_stats(parts)
    traffic = parts.traffic
    return Stats(
        engine=None if figures is None else _engine(figures.engine),
        engine_restarts=parts.link.restarts,
        classes=_classes(parts, figures),
        tuples=_traffic(traffic),
        streams=len(parts.streams.names),
        producers=parts.feeds.producers,
        subscribers=parts.results.subscribers,
        connections=parts.connections.open,
    )


def _engine(totals: EngineTotals) -> EngineShown:
    return EngineShown(
        pid=totals.pid,
        policy=totals.policy,
        uptime_s=totals.uptime_ns / 1e9,
        busy_s=totals.busy_ns / 1e9,
        cpu_s=totals.cpu_ns / 1e9,
        slices=totals.slices,
        resident_bytes=totals.resident_bytes,
    )


def _classes(parts: Services, figures: EngineStats | None) -> dict[str, ClassShown]:
    members: dict[str, list[QueryStats]] = defaultdict(list)
    for query in figures.queries.values() if figures is not None else ():
        members[query.class_name].append(query)
    busy = {} if figures is None else figures.engine.class_busy_ns
    return {
        record.spec.name: _class(
            record.spec.priority, members[record.spec.name], busy.get(record.spec.name, 0)
        )
        for record in parts.catalog.classes()
    }


def _class(priority: int, queries: list[QueryStats], busy_ns: int) -> ClassShown:
    memory = {
        kind: sum(getattr(query, f"{kind}_bytes") for query in queries)
        for kind in ("queued", "state", "backlog")
    }
    return ClassShown(
        priority=priority,
        queries=len(queries),
        rows_in=sum(query.rows_in for query in queries),
        results=sum(query.rows_out for query in queries),
        busy_s=busy_ns / 1e9,
        latency_ms=LatencySummary.model_validate(Latency.merged(q.latency for q in queries).summary()),
        memory_bytes=memory,
    )


def _traffic(traffic: Traffic) -> TrafficShown:
    return TrafficShown(
        received=traffic.received.total(),
        acked=traffic.acked.total(),
        rejected=traffic.rejected.total(),
        repeated=traffic.repeated.total(),
    )
