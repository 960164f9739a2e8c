"""Quotas of owners: how many queries a token may have, and how much memory these may hold together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from mavstream_protocol.quantities import format_size
from mavstream_server.core.errors import TooMany
from mavstream_server.core.principal import Principal
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.views.metrics import MetricsCache


class OwnerQuotas:
    """Refuses queries above the quotas of their owner, and ends the largest where an owner holds too much."""

    def __init__(
        self,
        registry: QueryRegistry,
        metrics: MetricsCache,
        fail: Callable[[Query, str], Awaitable[None]],
    ) -> None:
        """`fail` ends a query for a reason."""
        self._registry = registry
        self._metrics = metrics
        self._fail = fail

    def check_count(self, principal: Principal) -> None:
        """Raise TooMany if somebody may not have one more query."""
        most = principal.quotas.queries
        if most is not None and len(self._owned(principal)) >= most:
            raise TooMany(
                f"token '{principal.name}' has {most} queries, ended ones included, which is its quota: "
                "remove some with 'mavstream query delete'",
                code="token_queries",
            )

    async def check_memory(self, principal: Principal) -> None:
        """Raise TooMany if the queries of somebody hold as much memory as they may."""
        most = principal.quotas.state
        if most is None:
            return
        held = sum((await self._held(principal)).values())
        if held >= most:
            raise TooMany(
                f"the queries of token '{principal.name}' hold {format_size(held)}, and its quota is "
                f"{format_size(most)}: remove some, or use shorter windows",
                code="token_state",
            )

    async def enforce(self, principals: Iterable[Principal]) -> None:
        """End the largest queries of everybody whose queries hold more memory than allowed."""
        for principal in principals:
            most = principal.quotas.state
            if most is None:
                continue
            held = await self._held(principal)
            total = sum(held.values())
            for id_ in sorted(held, key=lambda id_: -held[id_]):
                if total <= most:
                    break
                query = self._registry.find(id_)
                if query is not None:
                    await self._fail(
                        query,
                        f"the queries of token '{principal.name}' held {format_size(total)}, its quota is "
                        f"{format_size(most)}, and this one held most: {format_size(held[id_])}",
                    )
                total -= held[id_]

    def _owned(self, principal: Principal) -> list[Query]:
        return [query for query in self._registry if query.owner == principal.name]

    async def _held(self, principal: Principal) -> dict[str, int]:
        """Return the bytes of state and queues of somebody's running queries."""
        ids = [query.id for query in self._owned(principal) if query.placed]
        metrics = await self._metrics.of(ids)
        return {id_: found.state_bytes + found.queued_bytes for id_, found in metrics.items()}
