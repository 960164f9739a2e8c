"""The groups of open sessions: panes as long as the gap, chained once no row can change them any more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.columns.column import Array, Ints
from mavstream_server.columns.pieces import Steps, finished, joined, ordered, pieces, taken
from mavstream_server.operators.aggregates.accumulator import Accumulator
from mavstream_server.operators.aggregates.groups import Groups, GroupTable, MakeAccumulators
from mavstream_server.operators.aggregates.windows import Rows, WindowGroups
from mavstream_server.operators.windows.panes import Panes

FIRST_ROW, FIRST_TIME, LAST_TIME, ROW_COUNT = -4, -3, -2, -1
"""The last accumulators of a group, which describe the session itself."""

_NONE = np.empty(0, dtype=np.int64)
_SPARE_SLOTS = 64


class SessionGroups(WindowGroups):
    """Folds rows into panes as long as the gap, and chains the panes of a key to sessions.

    Two rows of a key in one pane are in one session, whatever else arrives; so a row is folded once, and rows
    that bridge two sessions need no special care. A pane is complete when the watermark has passed it. Then
    it extends the session of its key, or begins a new one: in the order of panes, so that sums of floats do
    not depend on when that happens. All sessions that are still open then end in the next pane.
    """

    def __init__(self, gap: int, make: MakeAccumulators) -> None:
        self._gap = gap
        self._make = make
        self._table = GroupTable(make)
        self._pane = BEGIN_OF_TIME  # panes before it are complete
        self._sessions = Groups(_NONE, make())  # by slot; of complete panes
        self._open: Array = np.empty(0, dtype=np.bool_)  # by slot
        self._order = _NONE  # slots by end, then by first row
        self._ends = _NONE
        self._decided = 0  # of `_order`: closed, or continued in the pane that is not complete

    def fold(self, panes: Panes, firsts: Ints | None, rows: Rows) -> Steps[None]:
        """Fold rows into their panes."""
        yield from rows.fold_into(self._table, panes)

    def close(self, opened: int, code_count: int) -> Iterator[tuple[Ints, Groups] | None]:
        """Remove and yield the sessions that end at or before the watermark `opened`, with their ends."""
        if opened == BEGIN_OF_TIME:
            return
        pane = opened if opened == END_OF_TIME else opened // self._gap
        if pane > self._pane:
            yield from self._complete(pane, code_count)
        stop = int(np.searchsorted(self._ends, opened, side="right"))
        if stop > self._decided:
            slots, ends = (each[self._decided : stop] for each in (self._order, self._ends))
            self._decided = stop
            firsts = self._table.accumulators[FIRST_TIME].arrays["value"]
            over = []
            for piece in pieces(len(slots)):
                cells = self._table.slots_of(self._pane, self._sessions.codes.take(slots[piece]))
                begin = firsts.take(np.maximum(cells, 0))
                over.append(slots[piece][(cells < 0) | (begin >= ends[piece])])
                yield None
            ended = yield from joined(over)
            if len(ended):
                yield (yield from self._taken(ended))

    def _complete(self, pane: int, code_count: int) -> Iterator[tuple[Ints, Groups] | None]:
        """Chain the panes before `pane` to sessions, in order; yields sessions that end before that."""
        popped = yield from self._table.popping(pane)
        self._pane = pane
        if popped is not None:
            panes, cells = popped
            edges = [0, *(np.flatnonzero(np.diff(panes)) + 1).tolist(), len(panes)]
            for start, stop in pairwise(edges):
                some = cells if len(edges) == 2 else (yield from cells.taking(np.arange(start, stop)))
                yield (yield from self._chain(some, code_count))
        if len(self._open) > 2 * np.count_nonzero(self._open) + _SPARE_SLOTS:
            self._sessions = yield from self._sessions.taking(np.flatnonzero(self._open))
            self._open = np.ones(len(self._sessions), dtype=np.bool_)
        yield from self._sort()

    def _chain(self, cells: Groups, code_count: int) -> Steps[tuple[Ints, Groups] | None]:
        """Extend sessions by one pane and begin new ones; returns those that it does not extend."""
        slots = np.flatnonzero(self._open)
        slot_of_code = np.zeros(code_count, dtype=np.int32)  # plus one
        for piece in pieces(len(slots)):
            slot_of_code[self._sessions.codes.take(slots[piece])] = slots[piece] + 1
            yield
        slots_of_cells = np.empty(len(cells), dtype=np.int64)
        extended = np.zeros(len(self._open), dtype=np.bool_)
        firsts, lasts = cells.accumulators[FIRST_TIME].arrays["value"], self._value(LAST_TIME)
        for piece in pieces(len(cells)):
            found = slot_of_code.take(cells.codes[piece]).astype(np.int64) - 1
            near = (found >= 0) & (firsts[piece] - lasts.take(np.maximum(found, 0)) < self._gap)
            slots_of_cells[piece] = np.where(near, found, -1)
            extended[found[near]] = True
            yield
        yield from self._sort()
        over = []
        for piece in pieces(len(self._order)):
            some = self._order[piece]
            over.append(some[~extended.take(some)])
            yield
        ended = yield from joined(over)
        closed = (yield from self._taken(ended)) if len(ended) else None
        yield from self._merge(cells, slots_of_cells)
        return closed

    def _merge(self, cells: Groups, slots: Ints) -> Steps[None]:
        """Fold the groups of a pane into the sessions of these slots; -1 is a new one."""
        new = np.flatnonzero(slots < 0)
        size = len(self._sessions)
        slots[new] = np.arange(size, size + len(new))
        added = yield from taken(cells.codes, new)
        self._sessions.codes = yield from joined([self._sessions.codes, added])
        self._open = np.concatenate([self._open, np.ones(len(new), dtype=np.bool_)])
        for ours, theirs in zip(self._sessions.accumulators, cells.accumulators, strict=True):
            yield from ours.reserve(size + len(new))
            ours.grow(size + len(new))
            yield from ours.merging(slots, theirs)

    def _sort(self) -> Steps[None]:
        slots = np.flatnonzero(self._open)
        firsts = yield from taken(self._value(FIRST_ROW), slots)
        ends = (yield from taken(self._value(LAST_TIME), slots)) + self._gap
        order = yield from ordered(ends, (yield from ordered(firsts)))
        self._order, self._ends = (yield from taken(slots, order)), (yield from taken(ends, order))
        self._decided = 0

    def _value(self, accumulator: int) -> Ints:
        values: Ints = self._sessions.accumulators[accumulator].arrays["value"]
        return values

    def _taken(self, slots: Ints) -> Steps[tuple[Ints, Groups]]:
        """Remove and return sessions with their ends."""
        self._open[slots] = False
        ends = (yield from taken(self._value(LAST_TIME), slots)) + self._gap
        return ends, (yield from self._sessions.answering(slots))

    @property
    def next_end(self) -> int:
        """The lowest watermark that can close a session."""
        if self._pane in (BEGIN_OF_TIME, END_OF_TIME):
            return BEGIN_OF_TIME
        if self._decided < len(self._ends):
            return int(self._ends[self._decided])
        return (self._pane + 1) * self._gap

    def skip(self, first: int, code_count: int) -> tuple[int, int]:
        """Drop nothing: which sessions a gap has touched is known when they end."""
        return 0, 0

    def accumulators(self) -> list[list[Accumulator]]:
        """Return those of the panes and of the sessions."""
        return [self._table.accumulators, self._sessions.accumulators]

    def live_codes(self) -> list[Ints]:
        """Return the keys of panes and sessions."""
        return [self._table.live_codes(), self._sessions.codes]

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the keys' codes after their coder was compacted."""
        yield from self._table.recode(mapping)
        self._sessions.codes = yield from taken(mapping, self._sessions.codes)

    @property
    def nbytes(self) -> int:
        """Bytes of panes and sessions."""
        return self._table.nbytes + (self._sessions.nbytes if len(self._sessions) else 0)

    def save(self) -> dict[str, Any]:
        """Return panes and sessions for a snapshot."""
        sessions = finished(self._sessions.taking(np.flatnonzero(self._open)))
        return {"table": self._table.save(), "sessions": sessions.save(), "pane": self._pane}

    def load(self, state: dict[str, Any]) -> None:
        """Restore panes and sessions from a snapshot."""
        self._table.load(state["table"])
        self._sessions = Groups.restore(state["sessions"], self._make)
        self._open = np.ones(len(self._sessions), dtype=np.bool_)
        self._pane = state["pane"]
        finished(self._sort())
