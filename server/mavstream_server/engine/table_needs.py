"""Which older versions of a stored table queries still need."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_server.engine.query import RunningQuery


def oldest_arrival(queries: Iterable[RunningQuery], table: str) -> int | None:
    """Return the lowest arrival time of the rows that are between operators of queries that join a table.

    Rows that were not read yet are not included: the stream logs know their arrival times.
    """
    found: list[int] = []
    for query in queries:
        if query.active and table in query.request.plan.tables:
            shared = [
                operator for member in query.shared for operator in member.trunk.network.operators.values()
            ]
            for operator in (*query.network.operators.values(), *shared):
                batches = (batch for queue in operator.inputs for batch in queue)
                found += [int(batch.arrival.min()) for batch in batches if batch.size]
                if operator.oldest_held is not None:
                    found.append(operator.oldest_held)
    return min(found, default=None)
