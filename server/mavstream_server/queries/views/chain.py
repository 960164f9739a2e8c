"""API views of chains: the queries below a query, with their states and how far they were read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mavstream_protocol.wire.plans import UpstreamQuery
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.views.metrics import latency_summary
from mavstream_server.queries.views.plans import current_stats
from mavstream_server.results.service import ResultService


def queries_below(query: Query, registry: QueryRegistry) -> list[Query]:
    """Return the queries whose results lead to those of a query, each after those that it reads."""
    found: dict[str, Query] = {}
    stack = [(query, False)]
    while stack:
        one, after_those_below = stack.pop()
        if after_those_below:
            found.setdefault(one.id, one)
        elif one.id not in found:
            stack.append((one, True))
            below = (registry.find(id_) for id_ in one.upstream.values())
            stack += [(each, False) for each in below if each is not None]
    return [one for one in found.values() if one is not query]


def chain_view(
    query: Query, below: Iterable[Query], stats: Mapping[str, QueryMetrics], results: ResultService
) -> tuple[UpstreamQuery, ...]:
    """Return the chain below a query."""
    upstream = list(below)
    read: dict[str, int] = {}
    for reader in (query, *upstream):
        current = current_stats(reader, stats.get(reader.id))
        for name, id_ in reader.upstream.items():
            position = None if current is None else current.positions.get(name)
            if position is not None:
                read[id_] = min(position, read.get(id_, position))
    return tuple(_described(one, read.get(one.id), stats.get(one.id), results) for one in upstream)


def _described(
    query: Query, read: int | None, stats: QueryMetrics | None, results: ResultService
) -> UpstreamQuery:
    current = current_stats(query, stats)
    sources = () if query.plan is None else query.plan.sources
    return UpstreamQuery(
        query=query.id,
        name=query.name,
        **{"class": query.class_name},
        state=query.state,
        reads=tuple(f"{'stream' if one.query is None else 'query'}:{one.stream}" for one in sources),
        results=results.of(query).end,
        read=read,
        latency_ms=None if current is None else latency_summary(current),
    )


def reading(ids: Iterable[str], registry: QueryRegistry) -> dict[str, tuple[str, ...]]:
    """Return which queries read the results of which, by id: those given, and those below them."""
    known = [query for id_ in ids if (query := registry.find(id_)) is not None]
    every = {one.id: one for query in known for one in (query, *queries_below(query, registry))}
    return {id_: tuple(sorted(one.upstream.values())) for id_, one in every.items() if one.upstream}
