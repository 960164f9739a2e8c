"""What queries still need of a stored table's older versions."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_server.engine.query import RunningQuery


def oldest_arrival(queries: Iterable[RunningQuery], table: str) -> int | None:
    """Return the lowest arrival among the rows that are on their way through queries that join a table.

    Rows that were not read yet are in the logs of their streams, where others see them.
    """
    found: list[int] = []
    for query in queries:
        if query.active and table in query.request.plan.tables:
            shared = [operator for part in query.shared for operator in part.trunk.network.operators.values()]
            for operator in (*query.network.operators.values(), *shared):
                batches = (batch for queue in operator.inputs for batch in queue)
                found += [int(batch.arrival.min()) for batch in batches if batch.size]
                if operator.oldest_held is not None:
                    found.append(operator.oldest_held)
    return min(found, default=None)
