"""Which operators a new query would share with running queries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mavstream_protocol.queries import Mode, QuerySpec
from mavstream_protocol.scheduling import Sharing
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.sql import SharedOperators
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.queries.registry import QueryRegistry

if TYPE_CHECKING:
    from mavstream_server.engine.sharing.prefix import Prefix

_SHOWN = 5
"""The most queries that are named."""


class _RunningQuery(NamedTuple):
    name: str
    spec: QuerySpec
    plan: TypedPlan


async def shared_operators(
    spec: QuerySpec, plan: TypedPlan, registry: QueryRegistry, mode: Sharing
) -> tuple[SharedOperators, ...]:
    """Return what a query would share with running ones: at most one entry per source, the longest prefix.

    Prefixes are compared as the engine does.
    """
    if mode is Sharing.OFF:
        return ()
    streams = {source.stream for source in plan.sources}
    running = [
        _RunningQuery(query.name, query.record.spec, query.plan)
        for query in registry
        if query.plan is not None
        and query.state is ActualState.RUNNING
        and not query.suspect
        and query.streams & streams
        and (mode is Sharing.ALL or query.class_name == spec.class_)
    ]
    # In a thread: there can be thousands of queries, and each takes some 100 us.
    return await asyncio.to_thread(_shared, spec, plan, running)


def _shared(
    spec: QuerySpec, plan: TypedPlan, running: Sequence[_RunningQuery]
) -> tuple[SharedOperators, ...]:
    # This loads the operators, which the API process needs for nothing else.
    from mavstream_server.engine.sharing.prefix import prefixes

    found = []
    others = [(one.name, prefix) for one in running for prefix in prefixes(one.plan, _options(one.spec))]
    for own in prefixes(plan, _options(spec)):
        depths = {name: depth for name, other in others if (depth := _common(own, other))}
        if depths:
            most = max(depths.values())
            names = sorted(name for name, depth in depths.items() if depth == most)
            shared = SharedOperators(
                stream=own.stream,
                operators=own.nodes[: most + 1],
                queries=tuple(names[:_SHOWN]),
                total=len(names),
            )
            found.append(shared)
    return tuple(found)


def _options(spec: QuerySpec) -> RunOptions:
    return RunOptions(spec.on_error, spec.mode is Mode.ONE_TIME, stop_at=spec.stop_at)


def _common(own: Prefix, other: Prefix) -> int:
    """Return how many operators above the source two prefixes have in common."""
    return sum(one == two for one, two in zip(own.keys, other.keys, strict=False))
