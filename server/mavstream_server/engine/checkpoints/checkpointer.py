"""The checkpointer of an engine: takes checkpoints periodically and whenever a command changes what is read.

Every checkpoint is of one query: its own cursors, its operator states and its rows in flight. There is no
barrier across queries. What changes which rows take part (start, pause, resume, shedding, a stop time) is
part of the next checkpoint, which is written before the query goes on; older ones are removed with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from mavstream_server.core.metrics import CheckpointMetrics
from mavstream_server.engine import saving
from mavstream_server.engine.checkpoints.cut import Cut, cut
from mavstream_server.engine.checkpoints.file import CheckpointHeader, CheckpointUnusable
from mavstream_server.engine.checkpoints.store import KEPT, CheckpointStore
from mavstream_server.engine.checkpoints.writing import ForkedWriter, Written
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery

_log = logging.getLogger(__name__)

_LONGEST_WRITE = 120_000_000_000  # ns after which a child that writes checkpoints is given up
_POLL_EVERY = 20_000_000  # ns


class _Kept(NamedTuple):
    number: int
    positions: Mapping[str, int]
    offset: int
    oldest_arrival: int | None


@dataclass(slots=True)
class _State:
    """The checkpoints of one query."""

    number: int = 0
    """Of the last checkpoint that was begun."""
    kept: list[_Kept] = field(default_factory=list)
    """On disk, oldest first."""
    progress: object = None
    """Of the last checkpoint that was begun: another one is due when this has changed."""
    taken_us: int = 0
    nbytes: int = 0
    duration_ns: int | None = None
    error: str | None = None
    failures: int = 0
    plans: dict[int, str] = field(default_factory=dict)
    """The plans that the query was migrated to, as JSON, by version."""
    catch_up: dict[str, int] | None = None
    """The ends of its streams at its recovery; None once replay is complete."""
    pauses: bool = False
    """Whether it is paused once it has caught up: the engine died while it was to be paused."""
    replayed: int = 0
    """Results that were computed again at the last recovery."""

    def fail(self, reason: str) -> None:
        """Record that a checkpoint could not be written; another one is due."""
        self.error, self.progress, self.failures = reason, None, self.failures + 1


Diverged = Callable[[RunningQuery, int], None]
"""Called with a recovered query and the number of its stored results that were not computed again."""


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
        self._diverged = diverged
        self._states: dict[str, _State] = {}
        self._begun = self._polled = time.monotonic_ns()
        self._writer: ForkedWriter | None = None
        self._pending: dict[str, tuple[int, Cut, int]] = {}
        self.count = 0
        """Checkpoints that were written."""
        self.fork_ns = 0
        """How long the last fork stopped the engine."""

    # Starting and ending

    def start(self, query: RunningQuery) -> None:
        """Write the first checkpoint of a query that starts anew; earlier ones are removed."""
        if self._interval is None:
            return
        state = self._states[query.id] = _State()
        stored = self._store.stored(query.id)
        state.number = stored[0].number if stored else 0
        self.record_command(query)

    def read(self, id_: str, number: int) -> bytes:
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

    def recovered(self, query: RunningQuery, plans: Mapping[int, str], *, pauses: bool) -> None:
        """Track a query that has been started from a checkpoint, until its replay is complete.

        With `pauses` it is paused then.
        """
        stored = self._store.stored(query.id)
        state = self._states[query.id] = _State(plans=dict(plans), pauses=pauses)
        state.number = stored[0].number
        state.kept = [
            _Kept(number, header.positions, header.offset, header.oldest_arrival)
            for number, header in reversed(stored)
        ]
        state.taken_us = stored[0].header.taken_us
        state.nbytes = self._store.nbytes(query.id, state.number)
        state.progress = cut(query).progress
        readers = self._engine.intake.readers
        state.catch_up = {node.stream: readers[node.stream].end for node in query.request.plan.sources}

    def release(self, id_: str) -> None:
        """Take no more checkpoints of a query that has ended.

        Its files stay until its end is recorded: if that does not happen, it has to end once more.
        """
        self._states.pop(id_, None)
        self._pending.pop(id_, None)

    def forget(self, id_: str) -> None:
        """Remove the checkpoints of a query that is removed."""
        if self._states.pop(id_, None) is not None:
            self._pending.pop(id_, None)
            self._store.remove(id_)

    def add_plan(self, id_: str, version: int, plan: str | None) -> None:
        """Remember the JSON form of a plan that a query is being migrated to."""
        state = self._states.get(id_)
        if state is not None and plan is not None:
            state.plans[version] = plan

    # Taking checkpoints

    def record_command(self, query: RunningQuery) -> None:
        """Write a checkpoint at once, since a command has changed which rows take part.

        Earlier checkpoints do not know the command: they are removed, also if this one cannot be written.
        """
        state = self._states.get(query.id)
        if state is None or not query.active:
            return
        self._pending.pop(query.id, None)
        # A child may be writing the number before: it must not replace this one.
        state.number += KEPT + 1
        at = cut(query)
        written = self._write(query, state.number, at, 1)
        state.kept.clear()
        self._settle(query.id, at, written)
        if written.error is not None:
            self._store.remove(query.id)

    def write_all(self) -> None:
        """Write a checkpoint of every query that has changed, for an orderly stop."""
        self._abandon_writer()
        for query in self._changed():
            state = self._states[query.id]
            at = cut(query)
            state.number += KEPT + 1
            self._prepare(query)
            self._settle(query.id, at, self._write(query, state.number, at))

    def tend(self, now: int) -> None:
        """Begin a round of checkpoints when it is due, and collect what was written; `now` is monotonic."""
        if now - self._polled < _POLL_EVERY:
            return
        self._polled = now
        if self._writer is not None:
            self._collect(self._writer, now)
        elif self._interval is not None and now - self._begun >= self._interval:
            self._begun = now
            self._check_replays()
            self._begin_round()

    def finish_round(self) -> None:
        """Wait until the checkpoints that are being written are on disk."""
        while self._writer is not None:
            self._collect(self._writer, time.monotonic_ns())
            time.sleep(0.001)

    @property
    def busy(self) -> bool:
        """Whether checkpoints are being written."""
        return self._writer is not None

    def _begin_round(self) -> None:
        tasks = []
        for query in self._changed():
            state, at = self._states[query.id], cut(query)
            state.number += 1
            state.progress = at.progress
            self._pending[query.id] = state.number, at, time.time_ns() // 1000
            tasks.append(partial(self._write_copy, query, state.number, at))
        if not tasks:
            return
        try:
            self._writer = ForkedWriter(tasks)
        except OSError as error:
            _log.error("checkpoints cannot be written", extra={"fields": {"reason": str(error)}})
            for id_ in self._pending:
                self._states[id_].fail(str(error))
            self._pending.clear()
            return
        self.fork_ns = self._writer.forked_ns

    def _changed(self) -> list[RunningQuery]:
        """Return the queries whose checkpoint is due: not those that are still replaying."""
        found = []
        for id_, state in self._states.items():
            query = self._engine.queries.get(id_)
            if query is None or not query.active or query.output.replay is not None:
                continue
            # Once more after the last change: the older checkpoint would hold rows of an idle stream.
            differ = bool(state.kept) and state.kept[0].positions != state.kept[-1].positions
            if differ or len(state.kept) < KEPT or state.progress != cut(query).progress:
                found.append(query)
        return found

    def _write_copy(self, query: RunningQuery, number: int, at: Cut) -> Written:
        """Write a checkpoint in the forked process."""
        self._prepare(query)
        return self._write(query, number, at)

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
            plan = self._states[query.id].plans.get(at.plan_version)
            header = CheckpointHeader(
                query.id,
                at.positions,
                at.offset,
                time.time_ns() // 1000,
                at.paused,
                at.plan_version,
                plan,
                at.oldest_arrival,
            )
            nbytes = self._store.write(number, header, saving.save(query), keep=keep)
        except Exception as error:
            return Written(query.id, number, 0, 0, f"{type(error).__name__}: {error}")
        return Written(query.id, number, nbytes, time.monotonic_ns() - begun)

    def _collect(self, writer: ForkedWriter, now: int) -> None:
        written, ended = writer.poll()
        for each in written:
            pending = self._pending.get(each.query)
            if pending is not None and pending[0] == each.number:
                del self._pending[each.query]
                self._settle(each.query, pending[1], each, pending[2])
        if not ended:
            if now - writer.begun > _LONGEST_WRITE:
                writer.kill()
            return
        self._writer = None
        for id_ in self._pending:
            self._states[id_].fail("the process that was to write it died")
        self._pending.clear()

    def _abandon_writer(self) -> None:
        if self._writer is not None:
            self._writer.kill()
            while not self._writer.poll()[1]:
                time.sleep(0.001)
            self._writer = None
            self._pending.clear()

    def _settle(self, id_: str, at: Cut, written: Written, taken_us: int | None = None) -> None:
        """Record that a checkpoint was written, or why not."""
        state = self._states[id_]
        if written.error is not None:
            state.fail(written.error)
            fields = {"query": id_, "reason": written.error}
            _log.error("checkpoint could not be written; the query goes on", extra={"fields": fields})
            return
        state.progress, state.error = at.progress, None
        self.count += 1
        state.kept.append(_Kept(written.number, at.positions, at.offset, at.oldest_arrival))
        del state.kept[:-KEPT]
        state.taken_us = time.time_ns() // 1000 if taken_us is None else taken_us
        state.nbytes, state.duration_ns = written.nbytes, written.duration_ns

    # Recovery

    def _check_replays(self) -> None:
        """Find queries that have read all rows from before their recovery without repeating all results."""
        for id_, state in tuple(self._states.items()):
            if state.catch_up is None:
                continue
            query = self._engine.queries.get(id_)
            if query is None or not query.active:
                continue
            replay = query.output.replay
            if replay is None and not state.pauses:
                state.catch_up = None
                continue
            at = cut(query)
            behind = any(at.positions.get(name, end) < end for name, end in state.catch_up.items())
            if behind or _in_flight(query):
                continue
            query.output.replay, state.catch_up = None, None
            if state.pauses:
                state.pauses = False
                self._engine.pause(id_)
                self.record_command(query)
            if replay is None:
                continue
            _log.error(
                "recovery did not repeat all stored results",
                extra={"fields": {"query": id_, "rows": replay.remaining}},
            )
            if self._diverged is not None:
                self._diverged(query, replay.remaining)

    # What checkpoints need

    def held_offset(self, id_: str) -> int | None:
        """Return the offset from which a result log must be retained; None if there is no checkpoint."""
        state = self._states.get(id_)
        return None if state is None or not state.kept else state.kept[0].offset

    def positions(self, id_: str) -> Mapping[str, int]:
        """Return the positions from which the oldest kept checkpoint of a query continues, by stream."""
        state = self._states.get(id_)
        return {} if state is None or not state.kept else state.kept[0].positions

    def held_positions(self) -> dict[str, tuple[int, str]]:
        """Return the lowest position that the kept checkpoints need, and the query it is for, by stream."""
        lowest: dict[str, tuple[int, str]] = {}
        for id_, state in self._states.items():
            for kept in state.kept[:1]:
                for stream, position in kept.positions.items():
                    if stream not in lowest or position < lowest[stream][0]:
                        lowest[stream] = position, id_
        return lowest

    def oldest_arrival(self, table: str) -> int | None:
        """Return the lowest arrival time of the rows in kept checkpoints that may still join a table."""
        found = [
            kept.oldest_arrival
            for id_, state in self._states.items()
            for kept in state.kept
            if kept.oldest_arrival is not None
            and (query := self._engine.queries.get(id_)) is not None
            and table in query.request.plan.tables
        ]
        return min(found, default=None)

    def metrics(self, id_: str) -> CheckpointMetrics | None:
        """Return the metrics of a query's last checkpoint; None if it has none."""
        state, query = self._states.get(id_), self._engine.queries.get(id_)
        if state is None or query is None:
            return None
        if query.output.replayed_rows:
            state.replayed = query.output.replayed_rows
        return CheckpointMetrics(
            state.taken_us if state.kept else None,
            state.nbytes,
            None if state.duration_ns is None else state.duration_ns // 1000,
            state.replayed,
            query.output.replay is not None,
            state.error,
            state.failures,
        )


def _in_flight(query: RunningQuery) -> bool:
    """Whether rows that a query has read are still between its operators, or in a shared pipeline."""
    if query.network.account.rows:
        return True
    if any(operator.unfinished is not None for operator in query.network.operators.values()):
        return True
    return any(not member.pipeline.is_quiescent for member in query.shared)
