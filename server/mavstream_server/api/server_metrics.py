"""Figures of the whole server at one time, for metrics and statistics."""

from __future__ import annotations

from collections import Counter

from mavstream_server.api.metrics import Figures
from mavstream_server.api.services import Services
from mavstream_server.core.metrics import EngineStats
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable


async def engine_stats(services: Services) -> EngineStats | None:
    """Return what the engine measured, or None while there is no engine."""
    if not services.link.ready:
        return None
    try:
        return await services.link.stats()
    except (EngineUnavailable, EngineRefused):
        return None


async def take_figures(services: Services) -> Figures:
    """Return what is shown as metrics."""
    streams = [services.streams.info(name) for name in services.streams.names]
    return Figures(
        traffic=services.traffic,
        stream_bytes={stream.name: stream.bytes for stream in streams},
        stream_positions={stream.name: stream.position for stream in streams},
        tables=[services.tables.info(name) for name in services.tables.names],
        states=Counter(services.queries.book.states()),
        connections=services.connections.open,
        producers=services.feeds.producers,
        subscribers=services.results.subscribers,
        engine_up=services.link.ready,
        engine_restarts=services.link.restarts,
        engine=await engine_stats(services),
        fairness=services.queries.fairness(),
        optimizing=services.optimizing,
    )
