"""The groups of open windows, for windows that overlap and for windows that do not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.pieces import Steps, finished, portions, taken
from mavstream_server.operators.aggregates.accumulator import Accumulator
from mavstream_server.operators.aggregates.groups import Groups, GroupTable, MakeAccumulators
from mavstream_server.operators.aggregates.sliding import SlidingGroups
from mavstream_server.operators.aggregates.stragglers import StragglerCounts
from mavstream_server.operators.windows.index import WindowIndex
from mavstream_server.operators.windows.panes import Panes


class Rows:
    """Rows to be folded into groups: the codes of their keys, the accumulators' input, their numbers."""

    __slots__ = ("code_count", "codes", "columns", "ordinals")

    def __init__(
        self, codes: Ints, code_count: int, columns: Sequence[Column], ordinals: Ints | None
    ) -> None:
        self.codes = codes
        self.code_count = code_count
        self.columns = columns
        self.ordinals = ordinals

    def take(self, rows: Ints) -> Rows:
        """Return the rows at the given indexes."""
        ordinals = None if self.ordinals is None else self.ordinals.take(rows)
        columns = [column.take(rows) for column in self.columns]
        return Rows(self.codes.take(rows), self.code_count, columns, ordinals)

    def fold_into(self, table: GroupTable, panes: Panes) -> Steps[None]:
        """Fold the rows into a table, in steps."""
        yield from table.adding(panes, self.codes, self.code_count, self.columns, self.ordinals)


class WindowGroups(ABC):
    """The groups of all open windows."""

    @abstractmethod
    def fold(self, panes: Panes, firsts: Ints | None, rows: Rows) -> Steps[None]:
        """Fold rows into their panes, in steps; `firsts` are those of the window gate (see `Admitted`)."""

    @abstractmethod
    def close(self, opened: int, code_count: int) -> Iterator[tuple[Ints, Groups] | None]:
        """Remove and yield the groups of all windows before `opened`, in order, with each group's window.

        Also yields None where a step ends between two answers.
        """

    @abstractmethod
    def skip(self, first: int, code_count: int) -> tuple[int, int]:
        """Drop all windows before `first`; returns how many of them had rows, and how many rows are lost.

        Rows that are also in a window that was answered or is still open are not lost.
        """

    @abstractmethod
    def accumulators(self) -> list[list[Accumulator]]:
        """Return all accumulators in memory."""

    @abstractmethod
    def live_codes(self) -> list[Ints]:
        """Return the keys of all groups, in arrays that may have them repeatedly."""

    @abstractmethod
    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the keys' codes after their coder was compacted, in steps."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all groups."""

    @abstractmethod
    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""


class SeparateWindows(WindowGroups):
    """The groups of windows that do not overlap: each window is one pane."""

    def __init__(self, make: MakeAccumulators) -> None:
        self._table = GroupTable(make)

    def fold(self, panes: Panes, firsts: Ints | None, rows: Rows) -> Steps[None]:
        """Fold rows into their windows."""
        yield from rows.fold_into(self._table, panes)

    def close(self, opened: int, code_count: int) -> Iterator[tuple[Ints, Groups] | None]:
        """Yield all closed windows at once."""
        popped = yield from self._table.popping(opened)
        if popped is not None:
            yield popped

    def skip(self, first: int, code_count: int) -> tuple[int, int]:
        """Drop the windows before `first`."""
        before, rows = self._table.panes, self._table.rows_before(first)
        self._table.pop(first)
        return before - self._table.panes, rows

    def accumulators(self) -> list[list[Accumulator]]:
        """Return the accumulators of the table."""
        return [self._table.accumulators]

    def live_codes(self) -> list[Ints]:
        """Return the keys of the table."""
        return [self._table.live_codes()]

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the codes of the table's keys."""
        yield from self._table.recode(mapping)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def save(self) -> dict[str, Any]:
        """Return the table for a snapshot."""
        return {"table": self._table.save()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the table from a snapshot."""
        self._table.load(state["table"])


class OverlappingWindows(WindowGroups):
    """The groups of overlapping windows: rows are folded into panes once, and panes are merged per window.

    Rows that were late for some of their windows (stragglers) cannot be folded into a pane, since a pane
    belongs to all of its windows: they are folded directly into each window that they are in time for.
    """

    def __init__(self, windows: WindowIndex, make: MakeAccumulators) -> None:
        self._windows = windows
        self._make = make
        self._filling = GroupTable(make)
        self._sliding = SlidingGroups(make)
        self._stragglers = GroupTable(make)
        self._unanswered = StragglerCounts()
        self._next = BEGIN_OF_TIME  # windows before it were answered

    def fold(self, panes: Panes, firsts: Ints | None, rows: Rows) -> Steps[None]:
        """Fold rows into their panes, and stragglers into the windows that they are in time for."""
        if firsts is None:
            yield from rows.fold_into(self._filling, panes)
            return
        late = firsts > self._windows.firsts_of_panes(panes.numbers)
        in_time = np.flatnonzero(~late)
        yield from rows.take(in_time).fold_into(self._filling, panes.take(in_time))
        straggling = np.flatnonzero(late)
        firsts = firsts.take(straggling)
        lasts = self._windows.lasts_of_panes(panes.numbers.take(straggling))
        self._unanswered.add(firsts, lasts)
        counts = lasts - firsts + 1
        for first, stop in portions(counts):
            some = counts[first:stop]
            each = np.repeat(np.arange(first, stop), some)
            steps = np.arange(len(each)) - np.repeat(np.cumsum(some) - some, some)
            copies = rows.take(straggling.take(each))
            yield from copies.fold_into(self._stragglers, Panes.of(firsts.take(each) + steps))
            yield

    def close(self, opened: int, code_count: int) -> Iterator[tuple[Ints, Groups] | None]:
        """Yield the groups of closed windows one window at a time, except those without rows."""
        while True:
            yield from self._drop_answered(code_count)
            number = self._next_window()
            if number is None or number >= opened:
                break
            first_pane = self._windows.first_pane(number)
            yield from self._collect(first_pane + self._windows.panes_per_window, code_count)
            total = yield from self._sliding.total(code_count)
            late = yield from self._stragglers.popping(number + 1)
            if late is not None:
                total = Groups(_NONE, self._make()) if total is None else total
                yield from total.merging(late[1], code_count)
            self._next = number + 1
            if total is not None and len(total):
                yield np.full(len(total), number), total
        self._next = max(self._next, opened)
        self._unanswered.answered(self._next)
        yield from self._drop_answered(code_count)

    def _drop_answered(self, code_count: int) -> Steps[None]:
        """Drop the panes that only answered windows need, in steps."""
        if self._next != BEGIN_OF_TIME:
            yield from self._sliding.drop_before(self._windows.first_pane(self._next), code_count)

    def _next_window(self) -> int | None:
        """Return the first window that has rows and was not answered yet."""
        panes = [pane for pane in (self._filling.lowest, self._sliding.oldest) if pane is not None]
        numbers = [self._windows.first_of_pane(pane) for pane in panes]
        if self._stragglers.lowest is not None:
            numbers.append(self._stragglers.lowest)
        return max(min(numbers), self._next) if numbers else None

    def _collect(self, before: int, code_count: int) -> Steps[None]:
        """Move complete panes from the table to the sliding groups, in steps."""
        popped = yield from self._filling.popping(before)
        if popped is None:
            return
        panes, groups = popped
        edges = [0, *(np.flatnonzero(np.diff(panes)) + 1).tolist(), len(panes)]
        for start, stop in pairwise(edges):
            pane = groups if len(edges) == 2 else (yield from groups.taking(np.arange(start, stop)))
            yield from self._sliding.pushing(int(panes[start]), pane, code_count)
            yield

    def skip(self, first: int, code_count: int) -> tuple[int, int]:
        """Drop the groups that only windows before `first` need."""
        finished(self._drop_answered(code_count))
        number = self._next_window()
        self._next = max(self._next, first)
        if number is None or number >= first:
            return 0, 0
        pane = self._windows.first_pane(first)
        rows = self._filling.rows_before(pane) + self._unanswered.skip(first)
        held = [pane for pane in (self._filling.highest, self._sliding.newest) if pane is not None]
        last = max((self._windows.last_of_pane(pane) for pane in held), default=number)
        self._filling.pop(pane)
        self._stragglers.pop(first)
        finished(self._sliding.drop_before(pane, code_count))
        return min(last + 1, first) - number, rows

    def accumulators(self) -> list[list[Accumulator]]:
        """Return the accumulators of panes, merged panes and stragglers."""
        held = [groups.accumulators for groups in self._sliding.held]
        return [self._filling.accumulators, self._stragglers.accumulators, *held]

    def live_codes(self) -> list[Ints]:
        """Return the keys of panes, merged panes and stragglers."""
        held = [groups.codes for groups in self._sliding.held]
        return [self._filling.live_codes(), self._stragglers.live_codes(), *held]

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the codes of the keys of panes, merged panes and stragglers."""
        yield from self._filling.recode(mapping)
        yield from self._stragglers.recode(mapping)
        for groups in self._sliding.held:
            groups.codes = yield from taken(mapping, groups.codes)

    @property
    def nbytes(self) -> int:
        """Bytes of panes, merged panes and stragglers."""
        return self._filling.nbytes + self._stragglers.nbytes + self._sliding.nbytes

    def save(self) -> dict[str, Any]:
        """Return panes, merged panes and stragglers for a snapshot."""
        return {
            "filling": self._filling.save(),
            "stragglers": self._stragglers.save(),
            "unanswered": self._unanswered.save(),
            "sliding": self._sliding.save(),
            "next": self._next,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore panes, merged panes and stragglers from a snapshot."""
        self._filling.load(state["filling"])
        self._stragglers.load(state["stragglers"])
        self._unanswered.load(state["unanswered"])
        self._sliding.load(state["sliding"])
        self._next = state["next"]


_NONE: Ints = np.empty(0, dtype=np.int64)
