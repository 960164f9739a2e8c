"""The memory limit of a query: whether it is exceeded, and what the query holds then."""

from __future__ import annotations

from mavstream_server.engine.query import RunningQuery


def excess(query: RunningQuery) -> str | None:
    """Return how a query exceeds its memory limit; None if it does not, or has none."""
    limit = query.request.memory_limit
    if limit is None:
        return None
    resident = query.resident
    if resident <= limit:
        return None
    return (
        f"query {query.id!r} holds {resident} bytes, more than its limit of {limit}: {held(query)}; "
        "use a smaller window, fewer groups or a higher memory_limit"
    )


def held(query: RunningQuery) -> str:
    """Return what a query holds, by operator, largest first."""
    held = {task.work.name: task.work.state_bytes for task in query.tasks.values()}
    largest = sorted(held.items(), key=lambda item: -item[1])[:3]
    parts = [f"{nbytes} in operator {name!r}" for name, nbytes in largest if nbytes]
    return ", ".join([*parts, f"{query.network.account.nbytes} between operators"])
