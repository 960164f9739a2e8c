"""Collects the metrics of the whole server, for Prometheus and the statistics route."""

from __future__ import annotations

from collections import Counter

from mavstream_server.api.metrics import ServerMetrics
from mavstream_server.api.services import Services
from mavstream_server.core.metrics import EngineReport
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable


async def engine_report(services: Services) -> EngineReport | None:
    """Return the engine's metrics, or None while there is no engine."""
    if not services.link.ready:
        return None
    try:
        return await services.link.metrics()
    except (EngineUnavailable, EngineRefused):
        return None


async def server_metrics(services: Services) -> ServerMetrics:
    """Return all metrics of the server."""
    streams = [services.streams.info(name) for name in services.streams.names]
    return ServerMetrics(
        traffic=services.traffic,
        stream_bytes={stream.name: stream.bytes for stream in streams},
        stream_positions={stream.name: stream.position for stream in streams},
        overloaded_streams={stream.name: int(stream.overloaded) for stream in streams},
        tables=[services.tables.info(name) for name in services.tables.names],
        clock_ahead=services.streams.clock.ahead,
        damaged=dict(services.damage.counts),
        lost_rows=dict(services.damage.rows),
        states=Counter(services.queries.registry.states()),
        connections=services.connections.open,
        producers=services.producers.count,
        subscribers=services.results.subscribers,
        engine_up=services.link.ready,
        engine_restarts=services.link.restarts,
        engine=await engine_report(services),
        classes=(await services.queries.metrics.overview()).classes,
        fairness=services.queries.fairness(),
        optimizer=services.optimizer,
    )
