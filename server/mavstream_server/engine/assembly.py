"""Assembly: an instantiated plan as a query that the engine can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from mavstream_server.engine.query import QueryRequest, RunningQuery
from mavstream_server.engine.task import Task
from mavstream_server.instantiator import Network
from mavstream_server.operators.source import Source
from mavstream_server.scheduling.view import OperatorKind

QueryT = TypeVar("QueryT", bound=RunningQuery)


def assemble(
    request: QueryRequest,
    network: Network,
    numbers: Iterator[int],
    train: int,
    room: int,
    woken: Callable[[Task], None],
    kind: type[QueryT],
) -> QueryT:
    """Make a task of every operator, numbered in order, and tell each who reads what it emits.

    `room` is the number of rows in the query's queues beyond which its sources do not read on; `kind`
    says whether it is a query or what several of them share.
    """
    query = kind(request, network)
    leaves = {path[0] for path in network.paths}
    for name, operator in network.operators.items():
        if isinstance(operator, Source):
            query.sources[name] = query.source_task(next(numbers), operator, query, train, room)
        else:
            part = OperatorKind.OUTPUT if operator is network.output else OperatorKind.OPERATIONAL
            query.tasks[name] = Task(next(numbers), operator, query, part, name in leaves, woken)
    query.connect()
    return query
