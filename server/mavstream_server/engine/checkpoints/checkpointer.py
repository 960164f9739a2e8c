"""The checkpointer of an engine: takes checkpoints periodically and whenever a command changes what is read.

Every checkpoint is of one query: its own cursors, its operator states and its rows in flight. There is no
barrier across queries. What changes which rows take part (start, pause, resume, shedding, a stop time) is
part of the next checkpoint, which is written before the query goes on; older ones are removed with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mavstream_server.engine import saving
from mavstream_server.engine.checkpoints.catching_up import CatchingUp, Diverged
from mavstream_server.engine.checkpoints.cut import Cut, cut
from mavstream_server.engine.checkpoints.file import CheckpointHeader, CheckpointUnusable
from mavstream_server.engine.checkpoints.records import CheckpointRecord, CheckpointRecords, Kept
from mavstream_server.engine.checkpoints.store import KEPT, CheckpointStore
from mavstream_server.engine.checkpoints.writing import ForkedWriter, Written
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery

_log = logging.getLogger(__name__)

_LONGEST_WRITE = 120_000_000_000  # ns after which a child that writes checkpoints is given up
_POLL_EVERY = 20_000_000  # ns
_TRY_AGAIN_AFTER = 1_000_000_000  # ns
_MOST_EMITTED = 1 << 26
"""Bytes that the unfinished work of an operator may emit so that its query can be saved."""
_LITTLE = 1 << 18
"""Bytes of state that are written in the engine when a command is recorded: faster than a fork."""


class Checkpointer:
    """Takes, tracks and loads the checkpoints of an engine's queries."""

    def __init__(
        self,
        engine: Engine,
        store: CheckpointStore,
        interval_ns: int | None,
        diverged: Diverged | None = None,
    ) -> None:
        """`interval_ns` is the time between two checkpoints of a query; None to take none."""
        self._engine = engine
        self._store = store
        self._interval = interval_ns
        self.records = CheckpointRecords()
        self._catching_up = CatchingUp(engine, self.records, diverged)
        self._begun = self._polled = time.monotonic_ns()
        self._round: ForkedWriter | None = None
        """Writes the queries that have changed."""
        self._commands: ForkedWriter | None = None
        """Writes queries after commands, beside a round: they are held until it has."""
        self._recording: set[str] = set()
        """The queries that it writes."""
        self._postponed: set[str] = set()
        """Held queries with too much work under way to be written now."""
        self._attempted = 0
        """When they were tried."""
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        """What to call when the last command of a query is on disk."""
        self._seen: object = None
        """What the engine had done when the last round began."""
        self.count = 0
        """Checkpoints that were written."""

    # Starting and ending

    def start(self, query: RunningQuery) -> None:
        """Write the first checkpoint of a query that starts anew; earlier ones are removed."""
        if self._interval is None:
            return
        stored = self._store.stored(query.id)
        self.records[query.id] = CheckpointRecord(stored[0].number if stored else 0)
        self.record_command(query)

    def read(self, id_: str, number: int) -> memoryview:
        """Return the snapshot of a checkpoint; raises CheckpointUnusable if the logs do not reach it."""
        header, saved = self._store.read(id_, number)
        for stream, position in header.positions.items():
            reader = self._engine.intake.readers.get(stream)
            if reader is None or not reader.begin <= position <= reader.end:
                found = "is not attached" if reader is None else f"has rows {reader.begin} to {reader.end}"
                raise CheckpointUnusable(
                    f"checkpoint {number} of query {id_!r} continues at row {position} of stream {stream!r}, "
                    f"which {found}"
                )
        return saved

    def recovered(self, query: RunningQuery, plans: Mapping[int, str]) -> None:
        """Track a query that has been started from a checkpoint, until it has caught up."""
        stored = self._store.stored(query.id)
        record = self.records[query.id] = CheckpointRecord(plans=dict(plans))
        record.number = stored[0].number
        record.kept = [
            Kept(number, header.positions, header.offset, header.oldest_arrival)
            for number, header in reversed(stored)
        ]
        record.taken_us = stored[0].header.taken_us
        record.nbytes = self._store.nbytes(query.id, record.number)
        record.progress = cut(query).progress
        readers = self._engine.intake.readers
        record.catch_up = {node.stream: readers[node.stream].end for node in query.request.plan.sources}

    def release(self, id_: str) -> None:
        """Take no more checkpoints of a query that has ended.

        Its files stay until its end is recorded: if that does not happen, it has to end once more.
        """
        self.records.pop(id_, None)
        self._recording.discard(id_)
        self._recorded(id_)

    def forget(self, id_: str) -> None:
        """Remove the checkpoints of a query that is removed."""
        if self.records.pop(id_, None) is not None:
            self._recording.discard(id_)
            self._store.remove(id_)
        self._recorded(id_)

    def add_plan(self, id_: str, version: int, plan: str | None) -> None:
        """Remember the JSON form of a plan that a query is being migrated to."""
        record = self.records.get(id_)
        if record is not None and plan is not None:
            record.plans[version] = plan

    # Commands

    def caught_up(self, id_: str) -> bool:
        """Whether a query reads rows that it has not read before a recovery; looks it up now."""
        if self._catching_up.under_way(id_):
            self._catching_up.check((id_,))
        return not self._catching_up.under_way(id_)

    def record_command(self, query: RunningQuery) -> None:
        """Write a checkpoint at once, since a command has changed which rows take part.

        The query must have caught up, since the results that are still to be computed again are not part of a
        checkpoint. Little state is written here. Otherwise a forked process writes it, and the query reads
        nothing until that is done; the others go on. Earlier checkpoints do not know the command: they are
        removed, also if this one cannot be written.
        """
        record = self.records.get(query.id)
        if record is None or not query.active:
            return
        assert query.output.replay is None, f"query {query.id!r} has not caught up"
        little = query.resident <= _LITTLE and not query.has_unfinished_work
        if query.id not in self._waiting and not self._store.synced and little:
            record.number += 1
            self._settle_command(query.id, self._write(query, record.number, cut(query), keep=1))
            return
        self._engine.hold(query)
        self._waiting.setdefault(query.id, [])
        self._recording.discard(query.id)  # it is written again, with this command
        if self._commands is None:
            self._begin_commands()

    def when_recorded(self, id_: str, done: Callable[[], None]) -> None:
        """Call `done` when the last command of a query is on disk: at once if it is."""
        if id_ in self._waiting:
            self._waiting[id_].append(done)
        else:
            done()

    def _begin_commands(self) -> None:
        """Fork a process that writes the queries whose commands are not recorded yet."""
        tasks = []
        self._recording = self._waiting.keys() - self._postponed
        for id_ in self._recording:
            query, record = self._engine.queries[id_], self.records[id_]
            record.number += 1
            tasks.append(partial(self._write_copy, query, record.number, 1))
        if not tasks:
            return
        self._commands = self._fork(tasks)
        if self._commands is None:
            self._end_commands("no process could be forked")

    def _end_commands(self, reason: str) -> None:
        """Give up what was not written, and go on with the commands that were given since."""
        self._commands = None
        for id_ in tuple(self._recording):
            self._recording.remove(id_)
            self._settle_command(id_, Written(id_, self.records[id_].number, 0, 0, reason))
        self._begin_commands()

    def _settle_command(self, id_: str, written: Written) -> None:
        record = self.records[id_]
        if written.postponed:  # the query is held: less of its work is left at the next attempt
            self._postponed.add(id_)
            self._attempted = time.monotonic_ns()
            self._settle(id_, written)
            return
        record.kept.clear()
        self._settle(id_, written)
        if written.error is not None:
            self._store.remove(id_)
        self._recorded(id_)

    def _recorded(self, id_: str) -> None:
        """Let a query go on whose commands are on disk."""
        self._postponed.discard(id_)
        waiting = self._waiting.pop(id_, None)
        if waiting is None:
            return
        query = self._engine.queries.get(id_)
        if query is not None:
            self._engine.release(query)
        for done in waiting:
            done()

    # Rounds

    def write_all(self) -> None:
        """Write a checkpoint of every query that has changed, for an orderly stop."""
        for writer in (self._round, self._commands):
            if writer is not None:
                writer.kill()
                while not writer.poll()[1]:
                    time.sleep(0.001)
        self._round = self._commands = None
        for id_ in tuple(self._waiting):
            self.records[id_].number += 1
            query, number = self._engine.queries[id_], self.records[id_].number
            self._settle_command(id_, self._write(query, number, cut(query), keep=1))
        for query in self._candidates():
            record, at = self.records[query.id], cut(query)
            if record.due(at):
                record.number += 1
                self._prepare(query)
                self._settle(query.id, self._write(query, record.number, at))

    def tend(self, now: int) -> None:
        """Begin a round of checkpoints when it is due, and collect what was written; `now` is monotonic."""
        if now - self._polled < _POLL_EVERY:
            return
        self._polled = now
        if self._commands is not None:
            if self._collect(self._commands, now):
                self._end_commands("the process that writes checkpoints died")
        elif self._postponed and now - self._attempted >= _TRY_AGAIN_AFTER:
            self._postponed.clear()
            self._begin_commands()
        if self._round is not None:
            if self._collect(self._round, now):
                self._end_round(self._round)
        elif self._interval is not None and now - self._begun >= self._interval:
            self._begun = now
            self._catching_up.check(tuple(self.records))
            self._begin_round()

    def _end_round(self, writer: ForkedWriter) -> None:
        self._round = None
        if writer.killed:
            self._seen = None  # what it has not written is due still
            _log.error("the process that writes checkpoints was killed; the next round writes the rest")

    def finish_round(self) -> None:
        """Wait until the checkpoints that are being written are on disk."""
        while self.busy:
            self._polled = 0
            self.tend(self._begun)
            time.sleep(0.001)

    @property
    def busy(self) -> bool:
        """Whether checkpoints are being written."""
        return self._round is not None or self._commands is not None

    @property
    def recording(self) -> bool:
        """Whether queries are held until commands to them are on disk."""
        return bool(self._waiting)

    def _begin_round(self) -> None:
        """Fork a process that finds the queries that have changed, and writes them."""
        readers = self._engine.intake.readers.values()
        seen = self.count, self._engine.loop.progress, [reader.end for reader in readers]
        if seen == self._seen:
            return  # nothing has happened since the last round, which wrote nothing
        self._seen, tasks = seen, []
        for query in self._candidates():
            record = self.records[query.id]
            record.number += 1
            tasks.append(partial(self._write_if_due, query, record))
        if tasks:
            self._round = self._fork(tasks)

    def _candidates(self) -> list[RunningQuery]:
        """Return the queries that may be written: not those that are replaying, or are held for a command."""
        queries = self._engine.queries
        found = [queries[id_] for id_ in self.records if id_ in queries and id_ not in self._waiting]
        return [query for query in found if query.active and query.output.replay is None]

    def _fork(self, tasks: Sequence[Callable[[], Written | None]]) -> ForkedWriter | None:
        try:
            return ForkedWriter(tasks)
        except OSError as error:
            _log.error("checkpoints cannot be written", extra={"fields": {"reason": str(error)}})
            return None

    # In the forked process

    def _write_if_due(self, query: RunningQuery, record: CheckpointRecord) -> Written | None:
        return self._write_copy(query, record.number) if record.due(cut(query)) else None

    def _write_copy(self, query: RunningQuery, number: int, keep: int = KEPT) -> Written:
        try:
            at = cut(query)
            self._prepare(query)
        except Exception as error:
            return _failed(query, number, error)
        return self._write(query, number, at, keep)

    def _prepare(self, query: RunningQuery) -> None:
        """Detach a query from shared pipelines; nothing may be emitted to the result log."""
        for each in (query, *(member.pipeline for member in query.shared)):
            for operator in each.network.operators.values():
                for queue in operator.inputs:
                    queue.receive = None
        self._engine.sharing.leave(query)
        for operator in query.network.operators.values():
            for queue in operator.inputs:
                queue.receive = None

    def _write(self, query: RunningQuery, number: int, at: Cut, keep: int = KEPT) -> Written:
        begun = time.monotonic_ns()
        try:
            plan = self.records[query.id].plans.get(at.plan_version)
            header = CheckpointHeader(
                query.id,
                at.positions,
                at.offset,
                time.time_ns() // 1000,
                at.paused,
                at.plan_version,
                plan,
                at.oldest_arrival,
                query.output.sink.revision,
                query.migrations.seam,
            )
            saved = saving.save(query, _MOST_EMITTED)
            upstream = query.request.plan.upstream_queries.values()
            nbytes = self._store.write(number, header, saved, keep=keep, reads=upstream)
        except Exception as error:
            return _failed(query, number, error)
        return Written(query.id, number, nbytes, time.monotonic_ns() - begun, None, at)

    # What was written

    def _collect(self, writer: ForkedWriter, now: int) -> bool:
        """Record what a process has written since the last call; returns whether it has ended."""
        written, ended = writer.poll()
        for each in written:
            record = self.records.get(each.query)
            if record is None:
                self._store.discard(each.query, each.number)  # the query has ended meanwhile
            elif record.number != each.number:
                # A command was recorded meanwhile, which this checkpoint does not know.
                self._store.discard(each.query, each.number)
            elif each.query in self._recording:
                self._recording.remove(each.query)
                self._settle_command(each.query, each)
            elif each.query not in self._waiting:
                self._settle(each.query, each)
        if not ended and now - writer.begun > _LONGEST_WRITE:
            writer.kill()
        return ended

    def _settle(self, id_: str, written: Written) -> None:
        """Record that a checkpoint was written, or why not."""
        record = self.records[id_]
        if written.cut is not None:
            self.count += 1
            record.written(written.cut, written)
            return
        record.fail(written.error or "")
        self._seen = None
        fields = {"query": id_, "reason": written.error}
        if written.postponed:
            _log.warning("checkpoint postponed", extra={"fields": fields})
        else:
            _log.error("checkpoint could not be written; the query goes on", extra={"fields": fields})


def _failed(query: RunningQuery, number: int, error: Exception) -> Written:
    if isinstance(error, saving.WorkUnderWay):
        return Written(query.id, number, 0, 0, str(error), postponed=True)
    return Written(query.id, number, 0, 0, f"{type(error).__name__}: {error}")
