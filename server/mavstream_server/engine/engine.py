"""The engine: runs queries in the order that the scheduling policy decides.

It can be stepped manually with a manual clock; the engine process is a thin host around it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.scheduling import Sharing
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.clock import Clock, SystemClock
from mavstream_server.engine import saving
from mavstream_server.engine.assembly import Assembly
from mavstream_server.engine.chains import UNREAD_BYTES, Chains
from mavstream_server.engine.crash_record import CrashRecord
from mavstream_server.engine.errors import ObjectInUse, UnknownObject
from mavstream_server.engine.loop import Loop
from mavstream_server.engine.memory_limit import excess
from mavstream_server.engine.migration.migration import MIGRATION_LIMIT
from mavstream_server.engine.migration.plan_changes import PlanChanges
from mavstream_server.engine.migration.replacement import Ended, NewPlan
from mavstream_server.engine.migration.warm_up import WarmUp
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_changes import RunningQueryChanges
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.sharing.sharing import QuerySharing
from mavstream_server.engine.slices.slice_runner import AnyTask, SliceRunner
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.engine.sources.source_task import SourceTask, TrainSize
from mavstream_server.engine.states import OperatorState, QueryState
from mavstream_server.engine.stop_times import StopTimes
from mavstream_server.log.reader import LogReader
from mavstream_server.log.result_reader import ResultReader
from mavstream_server.operators.operator import QueryFailed
from mavstream_server.operators.output import Sink
from mavstream_server.planning.weighting import weighted
from mavstream_server.scheduling.policy import Policy, SourceService
from mavstream_server.tables.stored import OpenTables

_log = logging.getLogger(__name__)


class Engine:
    """Starts, changes and ends queries. The policy host orders their work, the loop does it.

    `step` does a bounded amount of work and returns whether there was any. No method blocks.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        policy: str = "rr",
        options: Mapping[str, Any] | None = None,
        *,
        sources: SourceService | None = None,
        train: int | None = None,
        queue_limit: int | None = None,
        seed: int = 0,
        sharing: Sharing = Sharing.CLASS,
        tables: OpenTables | None = None,
        ended: Callable[[RunningQuery], None] | None = None,
        patient: bool = False,
        record: CrashRecord | None = None,
        unread_results: int = UNREAD_BYTES,
    ) -> None:
        """`sources` sets how sources are served; None for the way of the policy's paper.

        `train` is the number of rows that a source emits at once; None for as many as can be processed in
        1.5 ms. `queue_limit` is the default number of queued rows at which the sources of a query wait.

        `sharing` sets which queries share equal prefixes, `tables` are the stored tables that they may join.

        `ended` is called once for each query that has finished, failed or was stopped.

        `patient` says that rows which cannot lead to an answer yet may stay unread for a while even if there
        is nothing else to do; `step` must be called at `due` then.

        `record` notes what runs, for the case that the process dies.

        `unread_results` are the bytes that a query's results may be ahead of a query that reads them.
        """
        self.clock: Clock = clock or SystemClock()
        self.queries: dict[str, RunningQuery] = {}
        """The users' queries by id, ended ones included."""
        record = record or CrashRecord()
        runner = SliceRunner(self.clock, self._ran, self.fail, record)
        self.policy_host = PolicyHost(self.clock, runner, Random(seed), policy, options, sources)
        self.intake = Intake(self.clock.monotonic, self.fail, self.policy_host, record, patient)
        trains = TrainSize() if train is None else TrainSize(train, train)
        room = queue_limit or 4 * trains.full
        self.assembly = Assembly(self.clock, self.intake, self.policy_host, tables, trains, room)
        self.sharing = QuerySharing(self, sharing, trains.full)
        self.chains = Chains(self.intake, self.clock.now, unread_results)
        self.plan_changes = PlanChanges(
            self.clock,
            self.intake,
            self.policy_host,
            self.assembly,
            self.sharing,
            self._admit,
            self._replaced,
        )
        self._stop_times = StopTimes()
        self.loop = Loop(
            self.clock,
            runner,
            self.policy_host,
            self.intake,
            self.plan_changes.quiescent_points,
            self.sharing,
            self._stop_times,
        )
        self.changes = RunningQueryChanges(
            self.query, self.policy_host, self.sharing, self._stop_times, self.plan_changes.share
        )
        self._ended = ended

    def step(self) -> bool:
        """Serve the sources, then run one slice; returns whether anything was done."""
        return self.loop.step()

    def run(self, most: int = 1_000_000_000) -> int:
        """Step until there is nothing to do, at most `most` times; returns the number of steps."""
        return self.loop.run(most)

    # Streams and classes

    def attach(self, stream: str, reader: LogReader) -> None:
        """Attach a stream's log, so that queries can read it."""
        self.intake.attach(stream, reader)

    def detach(self, stream: str) -> None:
        """Detach a stream's log; raises ObjectInUse while a running or paused query reads it."""
        if stream not in self.intake.feeds:
            raise UnknownObject(f"stream {stream!r} is not attached to this engine")
        users = [
            query.id
            for query in self.queries.values()
            if query.active and any(node.stream == stream for node in query.request.plan.sources)
        ]
        if users:
            raise ObjectInUse(f"stream {stream!r} is read by {', '.join(sorted(users))}; stop these first")
        # Removes shared pipelines without members, which may still read it.
        self.sharing.rest(self.clock.now())
        self.intake.detach(stream)

    def attach_results(self, name: str, id_: str, reader: ResultReader) -> None:
        """Attach a query's result log under the query's name, so that other queries can read it."""
        query = self.queries.get(id_)
        self.chains.attach(name, id_, reader, query if query is not None and query.active else None)

    @property
    def due(self) -> int | None:
        """When `step` must be called at the latest (UTC, ns); None if nothing is scheduled."""
        return self.intake.rest_ends

    @property
    def timed(self) -> bool:
        """Whether something depends on the clock, so that `step` must be called regularly."""
        return bool(self._stop_times or self.plan_changes)

    def set_class(self, name: str, priority: int, latency: int | None = None) -> None:
        """Set a class's priority, and the latency target (us) of its queries that have none of their own."""
        self.policy_host.set_class(name, priority, None if latency is None else latency * 1000)
        self.sharing.reprioritised()

    # Queries

    def start(
        self, request: QueryRequest, sink: Sink, saved: bytes | memoryview | None = None
    ) -> RunningQuery:
        """Instantiate and start a query, from a snapshot if given; raises ObjectInUse, UnknownObject."""
        if request.id in self.queries and self.queries[request.id].active:
            raise ObjectInUse(f"query {request.id!r} is running already; stop it first or choose another id")
        request = replace(request, plan=weighted(request.plan))
        query = self.assembly.query(request, sink)
        if saved is not None:
            saving.load(query, saved)
        self.queries[request.id] = query
        try:
            self._admit(query)
        except BaseException:
            del self.queries[request.id]
            raise
        self._stop_times.watch(query)
        self.sharing.add(query)
        self.chains.started(query)
        self.chains.arrived(query.id)
        return query

    def _admit(self, query: RunningQuery) -> None:
        self.policy_host.admit(query)
        try:
            for node, source in zip(query.request.plan.sources, query.sources.values(), strict=True):
                self.intake.add(node.stream, source)
            for task in query.tasks.values():
                if task.ready:
                    task.become(OperatorState.READY)
                    self.policy_host.woken(task)
        except BaseException:
            self.policy_host.retire(query)
            self.intake.remove(query)
            raise

    # Shared pipelines

    def start_pipeline(self, pipeline: SharedPipeline) -> None:
        """Start a shared pipeline."""
        self._admit(pipeline)

    def stop_pipeline(self, pipeline: SharedPipeline) -> None:
        """Stop a shared pipeline."""
        self._retire(pipeline, QueryState.STOPPED)

    # Queries by id

    def query(self, id_: str) -> RunningQuery:
        """Return a query by id, ended ones included; raises UnknownObject."""
        if id_ not in self.queries:
            known = ", ".join(sorted(self.queries)) or "none"
            raise UnknownObject(f"unknown query {id_!r}; this engine has: {known}")
        return self.queries[id_]

    def stop(self, id_: str) -> None:
        """Stop a query and drop its state; open windows are not answered."""
        self._retire(self.query(id_), QueryState.STOPPED)

    def forget(self, id_: str) -> None:
        """Remove a query from the engine; one that runs is stopped first.

        Queries that read it wait for it to be started again, until its results are detached.
        """
        query = self.query(id_)
        self.chains.part(query)
        if query.active:
            self.stop(id_)
        del self.queries[id_]

    def pause(self, id_: str) -> None:
        """Detach a query from its streams; rows that it has read are processed, its state is retained."""
        query = self.query(id_)
        query.become(QueryState.PAUSED)
        self.plan_changes.paused(query)
        self.sharing.leave(query)
        self.intake.remove(query)
        self.chains.relieve()

    def resume(self, id_: str, positions: Mapping[str, int] | None = None) -> None:
        """Resume a paused query at these positions of its streams, or with the next rows to arrive.

        Windows that overlap the pause are dropped.
        """
        query = self.query(id_)
        query.become(QueryState.RUNNING)
        self.plan_changes.resumed(query)
        query.blocked = False
        for node, task in zip(query.request.plan.sources, query.sources.values(), strict=True):
            if not task.work.ended:
                end = self.intake.feeds[node.stream].reader.end
                wanted = end if positions is None else positions.get(node.stream, end)
                # It may have read on before its pause took effect.
                task.work.resume(max(min(wanted, end), task.work.cursor.position))
                self.intake.add(node.stream, task)

    def hold(self, query: RunningQuery) -> None:
        """Let a query read nothing until `release`; what it has read is processed."""
        self.sharing.leave(query)
        self.intake.remove(query)

    def release(self, query: RunningQuery) -> None:
        """Let a query that was held read on, unless it has been paused or has ended."""
        if query.state is not QueryState.RUNNING:
            return
        for node, task in zip(query.request.plan.sources, query.sources.values(), strict=True):
            if not task.attached and not task.work.ended:
                self.intake.add(node.stream, task)

    def migrate(self, id_: str, plan: TypedPlan, version: int = 1, limit: int = MIGRATION_LIMIT) -> None:
        """Migrate a query to an equivalent plan as soon as possible (see `migration`).

        `version` is the plan's number in the query's metrics. The migration is given up if the new operators
        would take longer than `limit` microseconds to build up their state.
        """
        self.plan_changes.migrate(self.query(id_), plan, version, limit)

    def replace(self, id_: str, change: NewPlan, version: int, ended: Ended) -> None:
        """Replace a query's plan as soon as possible (see `replacement`); `ended` is called then.

        Repeating it with the same version while that is in progress has another `ended` called.
        """
        self.plan_changes.replace(self.query(id_), change, version, ended)

    def _replaced(self, query: RunningQuery) -> None:
        self._stop_times.watch(query)
        self.chains.relieve()

    # Policies

    @property
    def policy(self) -> Policy[Any]:
        """The policy that decides at present."""
        return self.policy_host.policy

    def switch(
        self,
        policy: str,
        options: Mapping[str, Any] | None = None,
        sources: SourceService | None = None,
    ) -> None:
        """Replace the scheduling policy; queues and operator state are not affected.

        A policy of the same name continues with the new options and its state, if it supports that.
        """
        if self.policy_host.switch(policy, options, sources):
            self.intake.restart()

    def snapshot(self, id_: str) -> bytes:
        """Return a snapshot of a query between two slices: operator states, queues, positions, offset."""
        query = self.query(id_)
        self.sharing.leave(query)
        return saving.save(query)

    # After an operator has run

    def _ran(self, task: AnyTask, published: bool) -> None:
        """Update sources, units and memory after a task has run, and retire the query if it has ended."""
        query = task.query
        if not query.active:  # it has failed in another operator of the same slice
            return
        if isinstance(task, SourceTask) and task.state is OperatorState.SUSPEND:
            self.intake.rest(task, self.clock.now())
        if published:
            if not isinstance(task, SourceTask):
                task.measure_input()
            if query.outdated or query.units.moved(task):
                self.policy_host.refresh(query)
            if query.request.memory_limit is not None:
                self.check_memory(query)
            if isinstance(query, SharedPipeline):
                self.sharing.check_memory(query)
        if query.blocked and query.has_room:
            self.intake.unblock(query, self.clock.now())
        if query.output.ended and query.active:
            if isinstance(query, WarmUp):
                self.plan_changes.replacements.warm_up_failed(query, "the new plan has ended on earlier rows")
            else:
                self._retire(query, QueryState.FINISHED)

    def check_memory(self, query: RunningQuery) -> None:
        """Fail a query that holds more memory than its limit."""
        reason = excess(query) if query.active else None
        if reason is None:
            return
        limit = query.request.memory_limit
        if not self.plan_changes.migrations.relieve(
            query, f"with new operators the query held more than {limit} bytes"
        ):
            self.fail(query, "", QueryFailed(reason))

    def fail(self, query: RunningQuery, operator: str, error: Exception) -> None:
        """Fail a query or shared pipeline because one of its operators raised an error."""
        if not query.active or self.plan_changes.failed(query, operator, error):
            return
        if isinstance(query, SharedPipeline):
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
        self.plan_changes.forget(query)
        self.policy_host.retire(query)
        self.intake.remove(query)
        if isinstance(query, SharedPipeline):
            query.release()
            self.sharing.ended(query)
            return
        self.sharing.remove(query)
        self._stop_times.forget(query)
        self.chains.ended(query)
        self.chains.relieve()
        query.release()
        if self._ended is not None:
            self._ended(query)
