"""Commands of an engine process: executes them on its engine and returns replies."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mavstream_protocol.errors import MavstreamError
from mavstream_server.core.clock import Clock
from mavstream_server.core.metrics import QueryMetrics, TargetMetricsReply
from mavstream_server.core.storage.damage import DamageListener, log_damage
from mavstream_server.engine.checkpoints.catching_up import Diverged
from mavstream_server.engine.checkpoints.checkpointer import Checkpointer
from mavstream_server.engine.checkpoints.recoveries import Recoveries
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.engine.crash_record import CrashRecord, note_of
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.errors import ObjectInUse
from mavstream_server.engine.migration.migration import MIGRATION_LIMIT
from mavstream_server.engine.process.deferred_commands import DeferredCommands
from mavstream_server.engine.process.engine_memory import EngineMemory
from mavstream_server.engine.process.events import Need
from mavstream_server.engine.process.messages import (
    AttachResults,
    AttachStream,
    ChangeClass,
    DetachResults,
    DetachStream,
    Done,
    Failed,
    ForgetQuery,
    GetClassMetrics,
    GetEngineMetrics,
    GetQueryMetrics,
    GetTableNeed,
    GetTargetMetrics,
    Hello,
    MigratePlan,
    PauseQuery,
    ReplacePlan,
    Reply,
    ResumeQuery,
    SetClass,
    SetStopTime,
    SetTargets,
    ShedRows,
    Started,
    StartQuery,
    StartTrace,
    StopQuery,
    SwitchPolicy,
    TakeTrace,
    Value,
    WeighQuery,
)
from mavstream_server.engine.process.replacements import PlanReplacer, Replier
from mavstream_server.engine.process.result_logs import ResultLogs
from mavstream_server.engine.process.table_need import table_need
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.reporting import (
    class_metrics,
    consumer_lags,
    engine_metrics,
    needed_positions,
    query_metrics,
    target_metrics,
)
from mavstream_server.engine.slices.trace import RecordedSlices, Trace
from mavstream_server.log.reader import LogReader
from mavstream_server.tables.stored import OpenTables

_log = logging.getLogger(__name__)

_CACHE_BYTES = 8 << 20
"""Cache of decoded frames per stream: cursors at the end share the last few trains, others gain nothing."""

_RELEASE_EVERY = 5_000_000_000  # ns between two releases of removed segments


_RECORDED = (StartQuery, PauseQuery, ResumeQuery, SetStopTime, SetTargets, ShedRows)
"""Commands that change which rows take part: they survive a crash once they are replied to."""


class WrongCommand(MavstreamError):
    """An unknown command, or one out of order: before Hello, or a second Hello."""

    code = "wrong_command"


class HostedEngine:
    """An engine with its result logs, on which commands are executed."""

    def __init__(
        self,
        hello: Hello,
        clock: Clock,
        ended: Callable[[RunningQuery], None],
        damaged: DamageListener = log_damage,
        *,
        diverged: Diverged | None = None,
        patient: bool = False,
        record: CrashRecord | None = None,
    ) -> None:
        """`ended` is called with each query that has ended, after its result log was closed.

        `damaged` is called with damage in the files, `diverged` with queries whose recovery did not repeat
        all stored results; `patient` and `record` are those of the engine.
        """
        chosen = hello.scheduler
        self._record = record or CrashRecord()
        self.engine = Engine(
            clock,
            chosen.policy,
            chosen.options,
            sources=chosen.sources,
            train=hello.train,
            sharing=hello.sharing,
            tables=OpenTables(hello.data / "tables"),
            ended=self._ended,
            patient=patient,
            record=self._record,
            unread_results=hello.result_bytes,
        )
        self._query_memory = hello.query_memory
        self._memory = EngineMemory(self.engine, hello.engine_memory)
        self._damaged = damaged
        self.logs = ResultLogs(
            hello.data / "results", hello.result_bytes, hello.result_time_ns, on_damage=damaged
        )
        self.logs.appended = self.engine.chains.appended
        self.checkpointer = Checkpointer(
            self.engine,
            CheckpointStore(
                hello.data / "checkpoints", synced_with=hello.data / "results" if hello.sync else None
            ),
            hello.checkpoint_interval_ns,
            diverged,
        )
        self.recoveries = Recoveries()
        self._replacements = PlanReplacer(self.engine, self.checkpointer, hello.query_memory)
        self._deferred = DeferredCommands(self.engine, self.checkpointer.caught_up)
        self._notify_ended = ended
        self._started = clock.monotonic()
        self._epochs: dict[str, int] = {}
        self._released = self._released_at = 0
        self._recovered = -1_000_000_000

    def obey(self, command: object, reply: Replier) -> None:
        """Execute a command and reply when it is on disk, if it must survive a crash.

        One that changes which rows of a query take part waits until that has caught up after a recovery. Any
        exception becomes a Failed reply.
        """
        awaited = self._deferred.awaited_by(command)
        if awaited is None:
            self._obey_now(command, reply)
        else:
            self._deferred.add(awaited, partial(self._obey_now, command, reply))

    def _obey_now(self, command: object, reply: Replier) -> None:
        try:
            if isinstance(command, ReplacePlan):
                self._replacements.begin(command, reply)
                return
            done = Done(self._execute(command))
        except MavstreamError as error:
            reply(Failed(error.code, str(error)))
        except Exception as error:
            name = type(command).__name__
            _log.exception("command broke", extra={"fields": {"command": name}})
            reply(Failed("internal_error", f"{name} broke: {type(error).__name__}: {error}"))
        else:
            if isinstance(command, StartQuery) and command.checkpoint is not None:
                self._restore_state(command, partial(reply, done))
            elif isinstance(command, _RECORDED):
                self.checkpointer.when_recorded(command.id, partial(reply, done))
            else:
                reply(done)

    def _execute(self, command: object) -> Value:
        engine = self.engine
        match command:
            case StartQuery():
                return self._start(command)
            case GetEngineMetrics():
                return engine_metrics(engine, self._started)
            case GetQueryMetrics(ids):
                known = [engine.queries[id_] for id_ in ids if id_ in engine.queries]
                return {query.id: self._query_metrics(query) for query in known}
            case GetTargetMetrics(ids):
                known = [engine.queries[id_] for id_ in ids if id_ in engine.queries]
                running = [one for one in known if one.active and self.checkpointer.caught_up(one.id)]
                return TargetMetricsReply(
                    {one.id: target_metrics(one, self._epochs[one.id]) for one in running}
                )
            case GetClassMetrics():
                return class_metrics(engine)
            case GetTableNeed(table):
                return table_need(engine, self.checkpointer.records, table)
            case AttachStream(name, path):
                if name not in engine.intake.readers:
                    engine.attach(name, LogReader(path, _CACHE_BYTES, self._damaged))
            case AttachResults(name, id_, over, expected):
                self._attach_results(name, id_, over)
                for reader_id, offset in expected.items():
                    engine.chains.expect(id_, reader_id, offset)
            case DetachResults(id_):
                engine.chains.detach(id_)
            case DetachStream(name):
                reader = engine.intake.readers.get(name)
                engine.detach(name)
                if reader is not None:
                    reader.close()
            case StopQuery(id_):
                engine.stop(id_)
            case ForgetQuery(id_):
                self._forget(id_)
            case PauseQuery(id_):
                engine.pause(id_)
                self._record_command(id_)
            case ResumeQuery(id_, positions):
                engine.resume(id_, positions)
                self._record_command(id_)
            case ChangeClass(id_, class_name):
                engine.changes.reclass(id_, class_name)
            case SetStopTime(id_, stop_at):
                engine.changes.stop_at(id_, stop_at)
                self._record_command(id_)
            case SetTargets(id_, latency_target_us, utility):
                engine.changes.aim_at(id_, latency_target_us, utility)
                if any(source.shedder is not None for source in engine.queries[id_].network.sources):
                    self._record_command(id_)
            case WeighQuery(id_, weight):
                engine.changes.weigh(id_, weight)
            case ShedRows(id_, share):
                if engine.changes.shed(id_, share):
                    self._record_command(id_)
            case MigratePlan(id_, plan, version, plan_json, limit_us):
                engine.migrate(id_, plan, version, MIGRATION_LIMIT if limit_us is None else limit_us)
                self.checkpointer.add_plan(id_, version, plan_json)
            case SetClass(spec):
                engine.set_class(spec.name, spec.priority, spec.latency)
            case StartTrace(most):
                engine.loop.trace = Trace(most)
            case TakeTrace():
                trace, engine.loop.trace = engine.loop.trace, None
                return RecordedSlices([], 0) if trace is None else trace.recorded()
            case SwitchPolicy(chosen):
                engine.switch(chosen.policy, chosen.options, chosen.sources)
            case _:
                raise WrongCommand(f"{command!r:.200} is not a command that an engine at work understands")
        return None

    def _attach_results(self, name: str, id_: str, over: bool) -> None:
        chains = self.engine.chains
        if id_ not in chains:
            self.engine.attach_results(name, id_, self.logs.reader(id_))
            chains.finish(id_, over)

    def _start(self, command: StartQuery) -> Started:
        engine, id_ = self.engine, command.id
        if id_ in engine.queries and engine.queries[id_].active:
            raise ObjectInUse(f"query {id_!r} is running already; stop it first or choose another id")
        if command.memory_limit is None:
            command = replace(command, memory_limit=self._query_memory)
        begun = engine.clock.monotonic()
        self._record.begin(note_of((id_,)), array("q"), begun)
        sink = self.logs.open(command)
        try:
            saved = None if command.checkpoint is None else self.checkpointer.read(id_, command.checkpoint)
            query = engine.start(command, sink, saved)
        except BaseException:
            self.logs.close(id_)
            if command.checkpoint is None:  # else it is tried again, with an older one or without
                engine.chains.arrived(id_)
            raise
        finally:
            self._record.end()
        self._epochs[id_] = command.epoch
        query.migrations.version = command.plan_version
        if command.checkpoint is None:
            if command.paused:
                engine.pause(id_)
            self.checkpointer.start(query)
        else:
            self.recoveries.add(query, begun)
            self._track(query, command)
        positions = {**needed_positions(query)}
        for stream, position in self.checkpointer.records.positions(id_).items():
            positions[stream] = min(position, positions.get(stream, position))
        return Started(sink.offset, positions)

    def _track(self, query: RunningQuery, command: StartQuery) -> None:
        """Have checkpoints taken of a recovered query, which is as it was when the one it has was taken."""
        if command.was_paused:
            self.engine.pause(query.id)
        plan = {} if command.plan_json is None else {command.plan_version: command.plan_json}
        self.checkpointer.recovered(query, plan)

    def _restore_state(self, command: StartQuery, done: Callable[[], None]) -> None:
        """Bring a recovered query to the state that it was to have when the engine died.

        It takes effect behind the rows that the query may have read.
        """
        if command.paused == command.was_paused:
            done()
        elif command.paused:
            done()
            self.obey(PauseQuery(command.id), _ignore)
        else:
            self.obey(ResumeQuery(command.id, command.resumes), lambda _: done())

    def _record_command(self, id_: str) -> None:
        """Have a command that changed which rows take part survive a crash, before the query goes on."""
        self.checkpointer.record_command(self.engine.queries[id_])

    def _query_metrics(self, query: RunningQuery) -> QueryMetrics:
        metrics = query_metrics(query, self._epochs[query.id])
        return metrics._replace(
            checkpoint=self.checkpointer.records.metrics(query.id, self.engine),
            lags=consumer_lags(query, self.engine.clock.now()),
        )

    def _forget(self, id_: str) -> None:
        if id_ in self.engine.queries:
            self.engine.forget(id_)
            self.checkpointer.forget(id_)
            del self._epochs[id_]

    def _ended(self, query: RunningQuery) -> None:
        self.logs.close(query.id)
        self.checkpointer.release(query.id)
        self._notify_ended(query)

    @property
    def replies_soon(self) -> bool:
        """Whether commands wait until they are on disk, or until a query has caught up."""
        return self.checkpointer.recording or bool(self._deferred)

    @property
    def progress(self) -> int:
        """Grows whenever the positions that streams must retain may have changed."""
        return self.engine.loop.progress + self.checkpointer.count

    def needs(self) -> dict[str, Need]:
        """Return, by stream, the lowest position that its log must retain."""
        needs = {stream: Need(*need) for stream, need in self.engine.intake.needed().items()}
        for stream, (position, id_) in self.checkpointer.records.held_positions().items():
            known = needs.get(stream)
            if known is None or position < known.position:
                needs[stream] = Need(position, id_, position if known is None else known.furthest)
        return needs

    def keep_house(self, now_ns: int) -> None:
        """Check memory, take checkpoints, trim result logs, release removed segments of stream logs.

        Cheap to call often.
        """
        now = self.engine.clock.monotonic()
        self.checkpointer.tend(now)
        self.recoveries.check(now)
        if self._deferred:
            self._deferred.run()
        self._replacements.check(now)
        self.logs.trim(now_ns, self._held_offset)
        self._memory.check(now_ns)
        if now_ns - self._released < _RELEASE_EVERY or self._released_at == self.engine.loop.progress:
            return
        self._released, self._released_at = now_ns, self.engine.loop.progress
        for stream, reader in self.engine.intake.readers.items():
            try:
                reader.release_removed()
            except (OSError, MavstreamError):
                _log.exception("stream log cannot be listed", extra={"fields": {"stream": stream}})

    def _held_offset(self, id_: str) -> int | None:
        """Return the offset from which a result log is needed, by checkpoints or queries that read it."""
        needed = [self.checkpointer.records.held_offset(id_)]
        if id_ in self.engine.chains:
            name = self.engine.chains.name(id_)
            needed.append(self.engine.chains.needed(id_))
            needed.append(self.checkpointer.records.held_positions().get(name, (None, ""))[0])
        return min((offset for offset in needed if offset is not None), default=None)

    def recover(self, error: Exception) -> None:
        """Continue after an error that no query caused, but the policy: restart the policy.

        If it fails again within a second, it is replaced by round robin.
        """
        policy, now = self.engine.policy, self.engine.clock.monotonic()
        name, options = policy.name, policy.options.model_dump()
        if now - self._recovered < 1_000_000_000:
            name, options = "rr", {}
        self._recovered = now
        _log.error(
            "the loop broke; the policy starts anew", exc_info=error, extra={"fields": {"policy": name}}
        )
        self.engine.switch(name, options, self.engine.policy_host.sources)

    def save_all(self) -> None:
        """Write last checkpoints, so that the next start replays nothing."""
        self.checkpointer.write_all()

    def close(self) -> None:
        """Close all result logs."""
        self.logs.close_all()


def _ignore(reply: Reply) -> None:
    """Take no notice of the reply to a command that nobody has sent."""
