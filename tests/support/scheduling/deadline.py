"""Scripted networks under the deadline policy."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from mavstream_server.scheduling.view import Slice
from mavstream_server.testing import ScriptedNetwork, ScriptedQuery, Step

US, MS = 1_000, 1_000_000


def network(**options: Any) -> ScriptedNetwork:
    return ScriptedNetwork("deadline", options)


def add(
    network: ScriptedNetwork,
    id_: str,
    target: int | None = None,
    class_name: str = "default",
    *,
    cost: float = 1000.0,
    tuples: int = 10,
) -> ScriptedQuery:
    """Add a query of one operator and an output, with a latency target (ns) and waiting tuples."""
    query = network.add(id_, [Step("select", 1.0, cost)], class_name)
    network.retarget(id_, target)
    if tuples:
        network.arrive(id_, tuples)
    return query


def order(slices: list[Slice]) -> list[str]:
    """Return the queries that slices were of; several in a row count once."""
    return [id_ for id_, _ in groupby(slice_.operators[0].query.id for slice_ in slices)]


def take(network: ScriptedNetwork, slices: int) -> list[str]:
    """Run so many slices and return the queries that they were of."""
    taken = [network.step() for _ in range(slices)]
    return order([slice_ for slice_ in taken if slice_ is not None])
