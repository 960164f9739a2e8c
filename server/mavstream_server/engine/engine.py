"""The engine: runs queries by enacting what the scheduling policy decides.

It can be stepped by hand with a hand-advanced clock; a process of its own is a thin host around it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_protocol.problems import MavstreamError
from mavstream_protocol.scheduling import Sharing
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.engine import saving
from mavstream_server.engine.assembly import QueryT, assemble
from mavstream_server.engine.clock import Clock, SystemClock
from mavstream_server.engine.intake import DEFAULT_TRAIN, Intake
from mavstream_server.engine.query import QueryRequest, RunningQuery
from mavstream_server.engine.sharing.sharing import QuerySharing
from mavstream_server.engine.sharing.trunk import Trunk
from mavstream_server.engine.slices import AnyTask, SliceRunner
from mavstream_server.engine.source_task import SourceTask
from mavstream_server.engine.states import IllegalMove, OperatorState, QueryState
from mavstream_server.engine.still_point import StillPoints
from mavstream_server.engine.swapping import SWAP_LIMIT, Swaps
from mavstream_server.engine.task import Task
from mavstream_server.engine.trace import Trace
from mavstream_server.instantiator import Network, instantiate, operator_maker
from mavstream_server.log.cursor import Cursor
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.operator import Operator, QueryFailed
from mavstream_server.operators.output import Sink
from mavstream_server.scheduling.policy import Policy, SourceService
from mavstream_server.scheduling.registry import check_options, make_policy
from mavstream_server.scheduling.units import QueryUnits
from mavstream_server.scheduling.view import OperatorKind, Slice
from mavstream_server.tables.stored import OpenTables, StoredTable
from mavstream_server.weighting import weighted

_log = logging.getLogger(__name__)

_CORE = 0  # an engine is one process on one core
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
        sources: SourceService | None = None,
        train: int = DEFAULT_TRAIN,
        queue_limit: int | None = None,
        seed: int = 0,
        sharing: Sharing = Sharing.CLASS,
    ) -> None:
        """`sources` says how they are served; None for as the policy's paper has it.

        `sharing` says which queries run equal prefixes once.
        """
        self.clock: Clock = clock or SystemClock()
        self.random = Random(seed)
        self.queries: dict[str, RunningQuery] = {}
        """Those that users know, ended ones included,"""
        self.admitted: dict[str, RunningQuery] = {}
        """and those that policies do: the active ones, and trunks that several of them share."""
        self.priorities: dict[str, int] = {DEFAULT_CLASS: 1}
        self.tables: OpenTables | None = None
        """Where stored tables are, for the queries that join them."""
        self.trace: Trace | None = None
        """Where slices are recorded, while someone wants to see them."""
        self.train = train
        self._queue_limit = queue_limit or 4 * train
        self.intake = Intake(self.clock.monotonic, self.fail, self._woken)
        self._runner = SliceRunner(self.clock, self._ran, self.fail)
        self.sharing = QuerySharing(self, sharing, train)
        self.still_points = StillPoints(self.intake)
        make = partial(operator_maker, table=self.table)
        self.swaps = Swaps(
            self.clock, self.still_points, make, self._new_task, self.rearrange, self.sharing.came
        )
        self._timed: set[RunningQuery] = set()  # those with a time to stop at
        self._numbers = count(1)
        self.slices = 0
        """Run so far,"""
        self.busy = 0
        """the nanoseconds that they took,"""
        self.class_busy: defaultdict[str, int] = defaultdict(int)
        """and the same by class."""
        self.ended: Callable[[RunningQuery], None] = _nobody_asks
        """Called once for each query when it has ended, in whatever way."""
        self._idle = True
        self.sources = sources
        self._policy: Policy[Any] = make_policy(policy, self._view, options)
        self.intake.service = self._service()

    @property
    def _view(self) -> _EngineView:
        return _EngineView(self.admitted, self.priorities, self.random)

    # Streams and classes

    def attach(self, stream: str, reader: LogReader) -> None:
        """Make a stream's log readable for queries."""
        self.intake.attach(stream, reader)

    def detach(self, stream: str) -> None:
        """Let a stream's log go; raises ObjectInUse while a query reads it or is to go on reading it."""
        if stream not in self.intake.feeds:
            raise UnknownObject(f"stream {stream!r} is not attached to this engine")
        users = [
            query.id
            for query in self.queries.values()
            if query.active and any(node.stream == stream for node in query.request.plan.sources)
        ]
        if users:
            raise ObjectInUse(f"stream {stream!r} is read by {', '.join(sorted(users))}; stop these first")
        self.sharing.rest(self.clock.now())  # nothing is left that read it for others
        self.intake.detach(stream)

    @property
    def readers(self) -> dict[str, LogReader]:
        """The logs of the attached streams."""
        return {stream: feed.reader for stream, feed in self.intake.feeds.items()}

    def needed(self) -> dict[str, tuple[int, str]]:
        """Return the lowest position that each stream must keep, and the query that reads there."""
        return {
            stream: min(reading)
            for stream, feed in self.intake.feeds.items()
            if (
                reading := [
                    (task.work.cursor.position, id_)
                    for task in feed.sources
                    if not task.work.ended and (id_ := task.query.known_as) is not None
                ]
            )
        }

    @property
    def timed(self) -> bool:
        """Whether something is to be done by the clock, so that `step` must be called now and then."""
        return bool(self._timed or self.swaps)

    def set_priority(self, class_name: str, priority: int) -> None:
        """Set the priority of a class; it holds from the policy's next decision on."""
        self.priorities[class_name] = priority
        self._policy.reprioritised()
        self.sharing.reprioritised()

    # Queries

    def start(self, request: QueryRequest, sink: Sink, saved: bytes | None = None) -> RunningQuery:
        """Instantiate a query and begin to run it, from a snapshot if one is given."""
        if request.id in self.queries and self.queries[request.id].active:
            raise ObjectInUse(f"query {request.id!r} is running already; stop it first or choose another id")
        request = replace(request, plan=weighted(request.plan))
        query = self._instantiate(request, sink)
        if saved is not None:
            saving.load(query, saved)
        self.queries[request.id] = query
        try:
            self._admit(query)
        except BaseException:
            del self.queries[request.id]
            del self.admitted[request.id]
            self.intake.remove(query)
            self._timed.discard(query)
            raise
        self.sharing.came(query)
        return query

    def _admit(self, query: RunningQuery) -> None:
        request = query.request
        self.admitted[query.id] = query
        if request.options.stop_at is not None:
            self._timed.add(query)
        query.arrange(self._serves_sources)
        self._policy.admit(query)
        try:
            for node, source in zip(request.plan.sources, query.sources.values(), strict=True):
                self.intake.add(node.stream, source)
            for task in query.tasks.values():
                if task.ready:
                    task.become(OperatorState.READY)
                    self._woken(task)
        except BaseException:
            self._policy.retire(query)
            raise

    def _service(self) -> SourceService:
        """Return how sources are served: as asked for, else as the policy's paper has it where that can be.

        An engine has one core. Sources that would need another one are served by the policy, so that the
        time they take is their class's and not everybody's.
        """
        paper = self._policy.sources
        return self.sources or (SourceService.PER_CLASS if paper is SourceService.OWN_CORE else paper)

    @property
    def _serves_sources(self) -> bool:
        """Whether it is the policy that serves them."""
        return self.intake.service is SourceService.PER_CLASS

    def _instantiate(self, request: QueryRequest, sink: Sink) -> RunningQuery:
        def cursor(stream: str) -> Cursor:
            feed = self.intake.feeds.get(stream)
            if feed is None:
                raise UnknownObject(f"stream {stream!r} is not attached to this engine; attach it first")
            position = (request.positions or {}).get(stream)
            if position is None and request.earliest:
                position = feed.reader.begin
            return feed.reader.cursor(position)

        network = instantiate(request.plan, request.options, cursor, sink, self.clock.now, self.table)
        return self.assembled(request, network, RunningQuery)

    def assembled(self, request: QueryRequest, network: Network, kind: type[QueryT]) -> QueryT:
        """Return a query, or what several share, made of its operators."""
        room = request.queue_limit or self._queue_limit
        query = assemble(request, network, self._numbers, self.train, room, self._woken, kind)
        for task in query.tasks.values():
            task.tell_growth(self._grew if self._policy.watches_growth else None)
        return query

    def table(self, name: str) -> StoredTable:
        """Return a stored table; raises UnknownObject if there are none."""
        if self.tables is None:
            raise UnknownObject(f"table {name!r} cannot be joined: this engine was given no tables")
        return self.tables.open(name)

    # What several queries share

    def plant(self, trunk: Trunk) -> None:
        """Begin to run a trunk."""
        self._admit(trunk)

    def uproot(self, trunk: Trunk) -> None:
        """Run a trunk no more."""
        self._retire(trunk, QueryState.STOPPED)

    def rearrange(self, query: RunningQuery, change: Callable[[], None]) -> None:
        """Change what a query consists of, or its class, between two slices."""
        self._policy.retire(query)
        try:
            change()
        finally:
            query.arrange(self._serves_sources)
            for task in query.tasks.values():  # some may have stood by while the policy was switched
                task.tell_growth(self._grew if self._policy.watches_growth else None)
            self._policy.admit(query)
            self._tell_ready(query)

    # Queries, by their ids

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
        self.swaps.drop(query, "the query was paused")
        self.still_points.drop(query)
        self.sharing.leave(query)
        self.intake.remove(query)

    def resume(self, id_: str) -> None:
        """Let a paused query go on with the next rows to come; windows that the pause touched are dropped."""
        query = self.query(id_)
        query.become(QueryState.RUNNING)
        query.blocked = False
        for node, task in zip(query.request.plan.sources, query.sources.values(), strict=True):
            if not task.work.ended:
                task.work.resume(self.intake.feeds[node.stream].reader.end)
                self.intake.add(node.stream, task)

    def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class, at once."""
        query = self._active(id_, "its class")
        self.sharing.keep_apart(query)
        self.rearrange(query, lambda: setattr(query, "class_name", class_name))
        if not self.swaps.under_way(query):
            self.sharing.came(query)

    def weigh(self, id_: str, weight: int) -> None:
        """Let a query have more of its class, where the policy goes by weights; 1 is what all begin with."""
        query = self._active(id_, "its weight")
        self.rearrange(query, lambda: setattr(query, "weight", weight))
        self.sharing.reprioritised()

    def shed(self, id_: str, share: float) -> None:
        """Leave out this share of the rows that a query reads from now on; 0 for none."""
        query = self._active(id_, "what it sheds")
        self.sharing.leave(query)
        for task in query.sources.values():
            task.work.shed(share)

    def _active(self, id_: str, what: str) -> RunningQuery:
        query = self.query(id_)
        if not query.active:
            raise IllegalMove(f"query {id_!r} is {query.state.value} and cannot change {what} any more")
        return query

    def swap(self, id_: str, plan: TypedPlan, version: int = 1, limit: int = SWAP_LIMIT) -> None:
        """Let a query go on with a plan that gives the same answer, as soon as it can (see `swapping`).

        `version` is the plan's number in the query's figures. It is given up if new operators would take
        longer than `limit` microseconds to get to know what the old ones know.
        """
        query, plan = self.query(id_), weighted(plan)
        self.swaps.check(query, plan)
        self.swaps.drop(query, "another plan was asked for")
        self.sharing.keep_apart(query)  # until it is done, or given up
        self.swaps.ask(query, plan, version, limit)

    def _new_task(self, query: RunningQuery, operator: Operator) -> Task:
        task = Task(next(self._numbers), operator, query, OperatorKind.OPERATIONAL, False, self._woken)
        task.tell_growth(self._grew if self._policy.watches_growth else None)
        return task

    # Policies

    @property
    def policy(self) -> Policy[Any]:
        """The policy that decides now."""
        return self._policy

    def switch(
        self,
        policy: str,
        options: Mapping[str, Any] | None = None,
        sources: SourceService | None = None,
    ) -> None:
        """Let another policy decide from now on; what is in flight stays where it is.

        The same policy with other options goes on with what it has learned, if it can.
        """
        same = policy == self._policy.name and sources == self.sources
        if same and self._policy.adopt(check_options(policy, options)):
            return
        self._policy = make_policy(policy, self._view, options)
        self.sources = sources
        served = self._serves_sources
        self.intake.service = self._service()
        grew = self._grew if self._policy.watches_growth else None
        for query in self.admitted.values():
            if served is not self._serves_sources:
                query.arrange(self._serves_sources)
            for task in query.tasks.values():
                task.tell_growth(grew)
            self._policy.admit(query)
            self._tell_ready(query)
        self.intake.restart()

    def _tell_ready(self, query: RunningQuery) -> None:
        now = self.clock.now()
        for task in query.operators:
            assert isinstance(task, AnyTask)
            if task.state is OperatorState.READY:
                self._policy.arrived(task, now)

    def snapshot(self, id_: str) -> bytes:
        """Return a query's whole state between two slices: operators, queues, positions, offset."""
        query = self.query(id_)
        self.sharing.leave(query)
        return saving.save(query)

    # The loop

    def step(self) -> bool:
        """Serve the sources, then run one slice; returns whether anything was done."""
        now = self.clock.now()
        intake = self.intake
        if self.still_points.wanted:
            self.still_points.look(now)
        if self.sharing.due <= now and not self._idle:
            self.sharing.attend(now)
        if self._idle:
            intake.look(now)
        elif self.slices >= intake.look_at_slice or self.busy >= intake.look_at_busy:
            intake.look_between(now, self.slices, self.busy)
        eager = intake.service is not SourceService.WHEN_IDLE
        served = eager and intake.waiting and intake.serve(now, self._idle)
        slice_ = self._policy.next(_CORE, now)
        if slice_ is None and not served and not (self._idle and eager):
            # There is nothing else to do: rows that wait for a full train are handed on as they are.
            intake.look(now)
            served = intake.serve(now, idle=True)
            slice_ = self._policy.next(_CORE, now)
        if slice_ is None:
            self._idle = not (self._end_overdue(now) or served or self.sharing.rest(now))
            return not self._idle
        self._idle = False
        self.slices += 1
        self._run(slice_, now)
        return True

    def _run(self, slice_: Slice, now: int) -> None:
        report = self._runner.run(slice_)
        elapsed = report.elapsed
        self.busy += elapsed
        self.class_busy[slice_.operators[0].query.class_name] += elapsed
        if self.trace is not None:
            self.trace.add(now, _CORE, slice_, report)
        self._policy.finished(slice_, report)

    def run(self, most: int = 1_000_000_000) -> int:
        """Step until there is nothing to do, or so many times; returns how often."""
        for steps in range(most):
            if not self.step():
                return steps
        return most

    def _ran(self, task: AnyTask, published: bool) -> None:
        """See to what follows from an operator's turn."""
        query = task.query
        if isinstance(task, SourceTask) and task.state is OperatorState.SUSPEND:
            self.intake.rest(task, self.clock.now())
        if published:
            if query.units.moved(task):
                query.units = QueryUnits(query)
                self._policy.refreshed(query)
            if query.request.memory_limit is not None:
                self.check_memory(query)
            if isinstance(query, Trunk):
                self.sharing.check_memory(query)
        if query.blocked and query.has_room:
            self._unblock(query)
        if task.kind is OperatorKind.OUTPUT and query.output.ended and query.active:
            self._retire(query, QueryState.FINISHED)

    def _unblock(self, query: RunningQuery) -> None:
        self.intake.unblock(query, self.clock.now())
        for part in query.shared:
            if part.trunk.blocked and part.trunk.has_room:
                self.intake.unblock(part.trunk, self.clock.now())

    def _woken(self, task: AnyTask) -> None:
        if task.query.id in self.admitted and self._policy.arrived(task, self.clock.now()):
            self._runner.cut = True

    def _grew(self, task: Task) -> None:
        self._policy.grew(task, self.clock.now())

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

    def check_memory(self, query: RunningQuery) -> None:
        """Let a query fail that holds more than it may."""
        limit = query.request.memory_limit
        if limit is None or not query.active:
            return
        resident = query.memory.resident
        if resident <= limit:
            return
        if not self.swaps.relieve(query, f"with new operators the query held more than {limit} bytes"):
            reason = (
                f"query {query.id!r} holds {resident} bytes, more than its limit of {limit}; "
                "use a smaller window, fewer groups or a higher limit"
            )
            self.fail(query, "", QueryFailed(reason))

    def fail(self, query: RunningQuery, operator: str, error: Exception) -> None:
        """End a query, or what several share, because of an error in one of its operators."""
        if not query.active or self.swaps.failed(query, operator, error):
            return
        if isinstance(query, Trunk):
            query.error = operator, error
            self._retire(query, QueryState.FAILED)
            return
        if isinstance(error, MavstreamError):
            query.reason = str(error)
        else:
            query.reason = f"operator {operator!r} broke: {type(error).__name__}: {error}"
            _log.exception("query %s: operator %s broke", query.id, operator, exc_info=error)
        self._retire(query, QueryState.FAILED)

    def _retire(self, query: RunningQuery, state: QueryState) -> None:
        query.become(state)
        self.swaps.forget(query)
        self.still_points.drop(query)
        self._policy.retire(query)
        del self.admitted[query.id]
        self.intake.remove(query)
        if isinstance(query, Trunk):
            query.release()
            self.sharing.ended(query)
            return
        self.sharing.gone(query)
        self._timed.discard(query)
        query.release()
        self.ended(query)


class _EngineView(NamedTuple):
    """What policies see of an engine."""

    queries: Mapping[str, RunningQuery]
    priorities: Mapping[str, int]
    random: Random


def _nobody_asks(query: RunningQuery) -> None:
    """Stand in until someone wants to know of ended queries."""
