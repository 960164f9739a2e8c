"""Assembly of running queries: instantiates plans and creates tasks for their operators."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TypeVar

from mavstream_server.core.clock import Clock
from mavstream_server.engine.errors import UnknownObject
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.engine.sources.source_task import SourceTask, TrainSize
from mavstream_server.engine.task import Task
from mavstream_server.log.cursor import Cursor
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.output import Sink
from mavstream_server.operators.source import Source
from mavstream_server.planning.declared import declared
from mavstream_server.planning.instantiator import Network, instantiate
from mavstream_server.scheduling.statistics import StatisticsCollector
from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.tables.stored import OpenTables, StoredTable

QueryT = TypeVar("QueryT", bound=RunningQuery)


class Assembly:
    """Creates the queries of an engine, and their tasks, which are numbered in order of creation."""

    def __init__(
        self,
        clock: Clock,
        intake: Intake,
        policy_host: PolicyHost,
        tables: OpenTables | None,
        train: TrainSize,
        room: int,
    ) -> None:
        """`tables` are the stored tables that queries may join; None if the engine has none.

        `room` is the number of queued rows at which sources stop reading; a query may set its own.
        """
        self._now = clock.now
        self._intake = intake
        self._policy_host = policy_host
        self._tables = tables
        self.train = train
        """The sizes of the trains of sources."""
        self._room = room
        self._numbers = count(1)

    def query(self, request: QueryRequest, sink: Sink) -> RunningQuery:
        """Return a query whose cursors are at its start positions; raises UnknownObject."""
        return self.made(request, sink, RunningQuery)

    def made(self, request: QueryRequest, sink: Sink, kind: type[QueryT]) -> QueryT:
        """Return a query of a kind whose cursors are at its start positions; raises UnknownObject."""

        def cursor(stream: str) -> Cursor:
            feed = self._intake.feeds.get(stream)
            if feed is None:
                raise UnknownObject(f"stream {stream!r} is not attached to this engine; attach it first")
            position = (request.positions or {}).get(stream)
            start_at = request.options.start_at
            if position is None and start_at is not None:
                cursor = feed.reader.cursor()
                cursor.seek_arrival(start_at * 1000)
                if cursor.position < feed.reader.begin_of_columns:
                    cursor.seek(feed.reader.begin_of_columns)
                return cursor
            if position is None and request.earliest:
                position = feed.reader.begin_of_columns
            return feed.reader.cursor(position)

        options = request.options
        if options.one_time and options.since is None and not request.earliest:
            options = replace(options, since=self._now() // 1000)
        network = instantiate(request.plan, options, cursor, sink, self._now, self.table)
        return self.of(request, network, kind)

    def of(self, request: QueryRequest, network: Network, kind: type[QueryT]) -> QueryT:
        """Create a task for every operator of an instantiated plan, and connect each to its readers.

        `kind` is RunningQuery, or SharedPipeline for a prefix that several queries share.
        """
        query = kind(request, network)
        leaves = {path[0] for path in network.paths}
        for name, operator in network.operators.items():
            if isinstance(operator, Source):
                query.sources[name] = self.source(query, operator)
            else:
                role = OperatorKind.OUTPUT if operator is network.output else OperatorKind.OPERATIONAL
                query.tasks[name] = self._task(query, operator, role, name in leaves)
                query.tasks[name].collector = StatisticsCollector(declared(request.plan, name))
        query.connect()
        return query

    def source(self, query: RunningQuery, operator: Source) -> SourceTask:
        """Return a task for a source of a query."""
        room = query.request.queue_limit or self._room
        task = query.source_task(next(self._numbers), operator, query, self.train, room)
        task.collector = StatisticsCollector(declared(query.request.plan, operator.name))
        return task

    def task(self, query: RunningQuery, operator: Operator) -> Task:
        """Return a task for an operator that is added to a running query."""
        return self._task(query, operator, OperatorKind.OPERATIONAL, leaf=False)

    def _task(self, query: RunningQuery, operator: Operator, kind: OperatorKind, leaf: bool) -> Task:
        task = Task(next(self._numbers), operator, query, kind, leaf, self._policy_host.woken)
        self._policy_host.watch(task)
        return task

    def table(self, name: str) -> StoredTable:
        """Return a stored table; raises UnknownObject if there are none."""
        if self._tables is None:
            raise UnknownObject(f"table {name!r} cannot be joined: this engine was given no tables")
        return self._tables.open(name)
