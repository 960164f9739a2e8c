"""Session aggregate: emits one row per session of a group when the watermark passes its end."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise

import numpy as np

from mavstream_protocol.expressions.typed import AggregateExpression
from mavstream_protocol.plans.windows import SessionWindow, TimeWindow
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch, Mark
from mavstream_server.columns.column import Column, Ints
from mavstream_server.operators.aggregate import GROUPS_AT_ONCE, Aggregate
from mavstream_server.operators.aggregates.accumulator import Accumulator
from mavstream_server.operators.aggregates.counts import Count
from mavstream_server.operators.aggregates.groups import Groups
from mavstream_server.operators.aggregates.picks import IntMaximum, IntMinimum
from mavstream_server.operators.aggregates.sessions import FIRST_TIME, ROW_COUNT, SessionGroups
from mavstream_server.operators.operator import Operator, State
from mavstream_server.operators.windows.gate import MISSED
from mavstream_server.operators.windows.session_gate import SessionGate
from mavstream_server.operators.windows.windowed import Skipped, possible_since


class SessionAggregate(Aggregate):
    """Folds rows into the panes of their groups, and answers sessions in the order of their last rows' times.

    A session that could have begun with rows that were not seen is not answered. That is decided when it
    ends, as an earlier row may still be added until then; a gap mark tells the operators above.
    """

    def __init__(
        self,
        name: str,
        by: Sequence[tuple[str, FieldType]],
        window: SessionWindow,
        compute: Sequence[tuple[str, AggregateExpression]],
        on_error: OnError,
        once: bool = False,
        *,
        ordered: bool = True,
    ) -> None:
        self._gap = window.gap
        self._begin = window.begin
        panes = TimeWindow.model_construct(
            kind="tumbling", size=window.gap, until=window.until, partial=window.partial
        )
        super().__init__(name, by, panes, compute, on_error, once, ordered=ordered)
        self.gates = [SessionGate(self.windows, window.begin, self.counters, once)]
        self._numbered = True
        self._whole_from = BEGIN_OF_TIME  # sessions that begin before may lack rows
        self._seen_from = BEGIN_OF_TIME  # the same, by the start of the query alone

    def _no_groups(self) -> SessionGroups:
        self._sessions = SessionGroups(self._gap, self._make)
        return self._sessions

    def _own_accumulators(self) -> Iterator[Accumulator]:
        yield from (IntMinimum(), IntMinimum(), IntMaximum(), Count())

    def _own_columns(self, batch: Batch, ordinals: Ints | None) -> Iterator[Column]:
        assert ordinals is not None
        assert batch.time is not None
        yield from (Column(each) for each in (ordinals, batch.time, batch.time, ordinals))

    @property
    def closes_at(self) -> int:
        """The lowest watermark that can close a session."""
        watermark = self.progress.watermark
        return BEGIN_OF_TIME if watermark == BEGIN_OF_TIME or self._done else self._sessions.next_end

    def _skip(self, mark: Mark, gap: int) -> Mark:
        """Note that rows up to a time were not seen; returns the mark with the gap in terms of answers."""
        if self._begin is not None and gap < self._begin:
            return mark._replace(gap=None)
        if not self.windows.partial:
            self._whole_from = max(self._whole_from, gap + self._gap)
            if self.progress.watermark == BEGIN_OF_TIME:
                self._seen_from = self._whole_from
        return mark._replace(gap=gap + self._gap - 1)

    def skip(self, first: int) -> Skipped:
        """Drop nothing: which sessions a gap has touched is known when they end."""
        return Skipped(0, 0)

    def _advance(self, frontier: int, batch: Batch, mark: Mark | None) -> Iterator[None]:
        assert mark is not None
        over = frontier >= self.windows.until
        for closed in self._sessions.close(END_OF_TIME if over else frontier, self._keys.count):
            yield
            if closed is not None:
                last = yield from self._close(*closed, batch, mark)
                if last is not None:
                    self.gates[0].end(last)
                    over = True
                    break
        if over:
            self._done = True
            self.clear()
            self.emit_mark(Mark(END_OF_TIME, mark.arrival, end=True))
        else:
            self.emit_mark(mark._replace(since=self._answers_since(mark.since)))

    def _close(
        self, ends: Ints, groups: Groups, batch: Batch, mark: Mark
    ) -> Generator[None, None, int | None]:
        """Answer sessions that are whole, in steps, and announce the others as gaps.

        Returns the end of a one-time query if it is reached: the first end of a whole session.
        """
        ends = np.minimum(ends, self.windows.until)
        starts = groups.accumulators[FIRST_TIME].result().values
        torn = starts < self._whole_from
        last: int | None = None
        if self._once and not torn.all():
            last = int(ends[~torn][0])
            kept = np.flatnonzero(ends <= last)
            groups, torn = (yield from groups.answering(kept)), torn[kept]
            starts, ends = starts.take(kept), ends.take(kept)
        if not torn.any():
            yield from self._emit_sessions(groups, starts, ends, batch, mark)
            return last
        self.count(MISSED, int(groups.accumulators[ROW_COUNT].result().values[torn].sum()))
        self.count("skipped_windows", int(np.count_nonzero(torn & (starts >= self._seen_from))))
        edges = [0, *(np.flatnonzero(np.diff(torn)) + 1).tolist(), len(ends)]
        for first, stop in pairwise(edges):
            if torn[first]:
                # What ends before the first of them is not affected; what contains one of them is.
                self.emit_mark(Mark(int(ends[first]) - 1, mark.arrival))
                self.emit_mark(Mark(int(ends[first]) - 1, mark.arrival, gap=int(ends[stop - 1]) - 1))
            else:
                rows = np.arange(first, stop)
                whole = yield from groups.answering(rows)
                yield from self._emit_sessions(whole, starts[rows], ends[rows], batch, mark)
        return last

    def _emit_sessions(
        self, groups: Groups, starts: Ints, ends: Ints, batch: Batch, mark: Mark
    ) -> Iterator[None]:
        arrival = possible_since(ends, batch, mark)
        for number, part in enumerate((yield from groups.dividing(GROUPS_AT_ONCE))):
            place = slice(number * GROUPS_AT_ONCE, (number + 1) * GROUPS_AT_ONCE)
            self._emit_groups(part, (starts[place], ends[place]), ends[place] - 1, arrival[place])
            yield

    def _answers_since(self, since: int) -> int:
        """Return the earliest time that an answer can have if rows have the time `since` or later."""
        return since if since == END_OF_TIME else since + self._gap - 1

    def agrees(self, other: Operator) -> bool:
        """Sessions of a query that began later may lack rows for ever."""
        return False

    def save(self) -> State:
        """Return sessions and from when on they are whole."""
        return {**super().save(), "whole_from": self._whole_from, "seen_from": self._seen_from}

    def load(self, state: State) -> None:
        """Restore sessions and from when on they are whole."""
        super().load(state)
        self._whole_from, self._seen_from = state["whole_from"], state["seen_from"]
