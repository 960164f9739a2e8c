"""The engine: runs queries by enacting what the scheduling policy decides.

It can be stepped by hand with a hand-advanced clock; a process of its own is a thin host around it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_protocol.problems import MavstreamError
from mavstream_server.engine import snapshot
from mavstream_server.engine.clock import Clock, SystemClock
from mavstream_server.engine.query import QueryRequest, RunningQuery
from mavstream_server.engine.source_service import DEFAULT_TRAIN, SourceService, SourceTask
from mavstream_server.engine.states import IllegalMove, OperatorState, QueryState
from mavstream_server.engine.task import Task
from mavstream_server.instantiator import instantiate
from mavstream_server.log.cursor import Cursor
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.operator import QueryFailed
from mavstream_server.operators.output import Sink
from mavstream_server.operators.source import Source
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import make_policy
from mavstream_server.scheduling.view import OperatorKind, Report, Slice

_log = logging.getLogger(__name__)

_CORE = 0  # an engine is one process on one core
_LOOK_EVERY = 32  # slices between two looks at the logs while there is work
_STOP_GRACE = 1_000_000_000  # ns after `stop_at` in which rows stamped before it may still come


class UnknownObject(MavstreamError):
    """A query or stream that this engine does not have."""

    code = "unknown_object"


class ObjectInUse(MavstreamError):
    """A query that runs already, or a stream that queries read."""

    code = "object_in_use"


class Engine:
    """Queries, the policy that orders their work, and the loop that does it.

    `step` does a bounded piece of work and returns whether there was any. Nothing here waits.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        policy: str = "rr",
        options: Mapping[str, Any] | None = None,
        *,
        train: int = DEFAULT_TRAIN,
        queue_limit: int | None = None,
        seed: int = 0,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.random = Random(seed)
        self.queries: dict[str, RunningQuery] = {}
        self.priorities: dict[str, int] = {DEFAULT_CLASS: 1}
        self._service = SourceService(train, queue_limit or 4 * train, self._fail)
        self._timed: set[RunningQuery] = set()  # those with a time to stop at
        self._numbers = 0
        self.slices = 0
        """Run so far,"""
        self.busy = 0
        """and the nanoseconds that they took."""
        self.ended: Callable[[RunningQuery], None] = _nobody_asks
        """Called once for each query when it has ended, in whatever way."""
        self._idle = True
        self._policy: Policy[Any] = make_policy(policy, self, options)

    # Streams and classes

    def attach(self, stream: str, reader: LogReader) -> None:
        """Make a stream's log readable for queries."""
        self._service.attach(stream, reader)

    def detach(self, stream: str) -> None:
        """Let a stream's log go; raises ObjectInUse while a query reads it or is to go on reading it."""
        if stream not in self._service.feeds:
            raise UnknownObject(f"stream {stream!r} is not attached to this engine")
        users = [
            query.id
            for query in self.queries.values()
            if query.active and any(node.stream == stream for node in query.request.plan.sources)
        ]
        if users:
            raise ObjectInUse(f"stream {stream!r} is read by {', '.join(sorted(users))}; stop these first")
        self._service.detach(stream)

    @property
    def readers(self) -> dict[str, LogReader]:
        """The logs of the attached streams."""
        return {stream: feed.reader for stream, feed in self._service.feeds.items()}

    def needed(self) -> dict[str, tuple[int, str]]:
        """Return the lowest position that each stream must keep, and the query that reads there."""
        return {
            stream: min((task.source.cursor.position, task.query.id) for task in reading)
            for stream, feed in self._service.feeds.items()
            if (reading := [task for task in feed.sources if not task.source.ended])
        }

    @property
    def timed(self) -> bool:
        """Whether a query is to end by the clock, so that `step` must be called now and then."""
        return bool(self._timed)

    def set_priority(self, class_name: str, priority: int) -> None:
        """Set the priority of a class; policies see it from their next decision on."""
        self.priorities[class_name] = priority

    # Queries

    def start(self, request: QueryRequest, sink: Sink, saved: bytes | None = None) -> RunningQuery:
        """Instantiate a query and begin to run it, from a snapshot if one is given."""
        if request.id in self.queries and self.queries[request.id].active:
            raise ObjectInUse(f"query {request.id!r} is running already; stop it first or choose another id")
        query = self._instantiate(request, sink)
        if saved is not None:
            self._load(query, saved)
        self.queries[request.id] = query
        try:
            self._admit(query)
        except BaseException:
            del self.queries[request.id]
            self._service.remove(query)
            self._timed.discard(query)
            raise
        return query

    def _admit(self, query: RunningQuery) -> None:
        request = query.request
        if request.options.stop_at is not None:
            self._timed.add(query)
        self._policy.admit(query)
        for source, node in zip(query.network.sources, request.plan.sources, strict=True):
            self._service.add(node.stream, SourceTask(source, query))
        for task in query.operators:
            if task.ready:
                task.become(OperatorState.READY)
                self._woken(task)

    def _instantiate(self, request: QueryRequest, sink: Sink) -> RunningQuery:
        def cursor(stream: str) -> Cursor:
            feed = self._service.feeds.get(stream)
            if feed is None:
                raise UnknownObject(f"stream {stream!r} is not attached to this engine; attach it first")
            position = (request.positions or {}).get(stream)
            if position is None and request.earliest:
                position = feed.reader.begin
            return feed.reader.cursor(position)

        network = instantiate(request.plan, request.options, cursor, sink, self.clock.now)
        query = RunningQuery(request, network)
        leaves = {path[0] for path in network.paths}
        for name, operator in network.operators.items():
            if isinstance(operator, Source):
                continue
            kind = OperatorKind.OUTPUT if operator is network.output else OperatorKind.OPERATIONAL
            self._numbers += 1
            query.tasks[name] = Task(self._numbers, operator, query, kind, name in leaves, self._woken)
        query.operators = list(query.tasks.values())
        query.paths = [[query.tasks[name] for name in path] for path in network.paths]
        return query

    def query(self, id_: str) -> RunningQuery:
        """Return a query by id, ended ones included; raises UnknownObject."""
        if id_ not in self.queries:
            known = ", ".join(sorted(self.queries)) or "none"
            raise UnknownObject(f"unknown query {id_!r}; this engine has: {known}")
        return self.queries[id_]

    def stop(self, id_: str) -> None:
        """End a query and drop what it holds; windows that are open stay unanswered."""
        self._retire(self.query(id_), QueryState.STOPPED)

    def forget(self, id_: str) -> None:
        """Remove an ended query from the books; one that runs is stopped."""
        query = self.query(id_)
        if query.active:
            self.stop(id_)
        del self.queries[id_]

    def pause(self, id_: str) -> None:
        """Detach a query from its streams; what it has read is still worked on, and its state is kept."""
        query = self.query(id_)
        query.become(QueryState.PAUSED)
        self._service.remove(query)

    def resume(self, id_: str) -> None:
        """Let a paused query go on with the next rows to come; windows that the pause touched are dropped."""
        query = self.query(id_)
        query.become(QueryState.RUNNING)
        query.blocked = False
        for source, node in zip(query.network.sources, query.request.plan.sources, strict=True):
            if not source.ended:
                source.resume(self._service.feeds[node.stream].reader.end)
                self._service.add(node.stream, SourceTask(source, query))

    def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class, at once."""
        query = self.query(id_)
        if not query.active:
            raise IllegalMove(f"query {id_!r} is {query.state.value} and cannot change its class any more")
        self._policy.retire(query)
        query.class_name = class_name
        self._policy.admit(query)
        self._tell_ready(query)

    # Policies

    @property
    def policy(self) -> Policy[Any]:
        """The policy that decides now."""
        return self._policy

    def switch(self, policy: str, options: Mapping[str, Any] | None = None) -> None:
        """Let another policy decide from now on; what is in flight stays where it is."""
        self._policy = make_policy(policy, self, options)
        for query in self.queries.values():
            if query.active:
                self._policy.admit(query)
                self._tell_ready(query)

    def _tell_ready(self, query: RunningQuery) -> None:
        now = self.clock.now()
        for task in query.operators:
            if task.state is OperatorState.READY:
                self._policy.arrived(task, now)

    # Snapshots

    def snapshot(self, id_: str) -> bytes:
        """Return a query's whole state between two slices: operators, queues, positions, offset."""
        query = self.query(id_)
        operators = query.network.operators
        return snapshot.encode(
            {
                "plan": _fingerprint(query),
                "operators": {name: operator.save() for name, operator in operators.items()},
                "queues": {
                    name: [list(queue) for queue in operator.inputs] for name, operator in operators.items()
                },
            }
        )

    def _load(self, query: RunningQuery, saved: bytes) -> None:
        tree = snapshot.decode(saved)
        if tree["plan"] != _fingerprint(query):
            raise snapshot.SnapshotMismatch(
                f"the snapshot is of another plan than query {query.id!r} has; "
                "restore it with the plan that it came from"
            )
        for name, operator in query.network.operators.items():
            operator.load(tree["operators"][name])
        # Tasks wake up while batches are pushed; the policy hears of them when the query is admitted.
        for name, operator in query.network.operators.items():
            for queue, batches in zip(operator.inputs, tree["queues"][name], strict=True):
                filled, queue.filled = queue.filled, _nobody
                for batch in batches:
                    queue.push(batch)
                queue.filled = filled

    # The loop

    def step(self) -> bool:
        """Serve the sources, then run one slice; returns whether anything was done."""
        now = self.clock.now()
        if self._idle or self.slices % _LOOK_EVERY == 0:
            self._service.look(now)
        served = self._service.serve(now, self._idle)
        slice_ = self._policy.next(_CORE, now)
        if slice_ is None and not served and not self._idle:
            # There is nothing else to do: rows that wait for a full train are handed on as they are.
            self._service.look(now)
            served = self._service.serve(now, idle=True)
            slice_ = self._policy.next(_CORE, now)
        if slice_ is None:
            self._idle = not (self._end_overdue(now) or served)
            return not self._idle
        self._idle = False
        self.slices += 1
        report = self._run(slice_)
        self.busy += report.elapsed
        self._policy.finished(slice_, report)
        return True

    def run(self, most: int = 1_000_000_000) -> int:
        """Step until there is nothing to do, or so many times; returns how often."""
        for count in range(most):
            if not self.step():
                return count
        return most

    def _run(self, slice_: Slice) -> Report:
        monotonic = self.clock.monotonic
        begin = monotonic()
        stop = None if slice_.duration is None else begin + slice_.duration
        consumed = produced = 0
        for task in slice_.operators:
            assert isinstance(task, Task)
            if task.state is not OperatorState.READY:
                continue
            try:
                rows_in, rows_out = self._run_task(task, slice_.tuples, stop)
            except Exception as error:  # behind the operator's own work, whose errors are caught there
                self._fail(task.query, task.work.name, error)
                continue
            consumed += rows_in
            produced += rows_out
        return Report(consumed, produced, monotonic() - begin)

    def _run_task(self, task: Task, tuples: int | None, stop: int | None) -> tuple[int, int]:
        work, query, monotonic = task.work, task.query, self.clock.monotonic
        rows_before, bytes_before = work.rows_out, work.bytes_out
        consumed = calls = 0
        task.become(OperatorState.RUN)
        begin = monotonic()
        try:
            while task.ready:
                port = task.fullest_input()
                batch = work.inputs[port].pop(None if tuples is None else tuples - consumed)
                work.process(port, batch)
                consumed += batch.size
                calls += 1
                if (tuples is not None and consumed >= tuples) or (stop is not None and monotonic() >= stop):
                    break
        except Exception as error:
            self._fail(query, work.name, error)
            return consumed, 0
        rows_out = work.rows_out - rows_before
        published = task.collector.add(
            consumed, rows_out, work.bytes_out - bytes_before, monotonic() - begin, calls
        )
        task.become(OperatorState.READY if task.ready else OperatorState.SUSPEND)
        if query.blocked and self._service.has_room(query):
            self._service.unblock(query, self.clock.now())
        if published and query.request.memory_limit is not None:
            self._check_memory(query, query.request.memory_limit)
        if task.kind is OperatorKind.OUTPUT and query.output.ended and query.active:
            self._retire(query, QueryState.FINISHED)
        return consumed, rows_out

    def _woken(self, task: Task) -> None:
        if task.query.id in self.queries:
            self._policy.arrived(task, self.clock.now())

    def _end_overdue(self, now: int) -> bool:
        """End sources whose `stop_at` has passed without a row behind it to say so; returns if there were."""
        ended = False
        for query in self._timed:
            stop_at = query.request.options.stop_at
            if stop_at is None or now < stop_at * 1000 + _STOP_GRACE:
                continue
            for source in query.network.sources:
                if not source.ended and (query.state is QueryState.PAUSED or not source.behind):
                    source.end(stop_at * 1000)
                    ended = True
        return ended

    def _check_memory(self, query: RunningQuery, limit: int) -> None:
        resident = query.memory.resident
        if resident > limit and query.active:
            reason = (
                f"query {query.id!r} holds {resident} bytes, more than its limit of {limit}; "
                "use a smaller window, fewer groups or a higher limit"
            )
            self._fail(query, "", QueryFailed(reason))

    def _fail(self, query: RunningQuery, operator: str, error: Exception) -> None:
        if not query.active:
            return
        if isinstance(error, MavstreamError):
            query.reason = str(error)
        else:
            query.reason = f"operator {operator!r} broke: {type(error).__name__}: {error}"
            _log.exception("query %s: operator %s broke", query.id, operator, exc_info=error)
        self._retire(query, QueryState.FAILED)

    def _retire(self, query: RunningQuery, state: QueryState) -> None:
        query.become(state)
        self._policy.retire(query)
        self._service.remove(query)
        self._timed.discard(query)
        query.release()
        self.ended(query)


def _fingerprint(query: RunningQuery) -> str:
    return repr(query.request.plan)


def _nobody_asks(query: RunningQuery) -> None:
    """Stand in until someone wants to know of ended queries."""


def _nobody() -> None:
    """Stand in for a consumer while queues are filled by hand."""
