"""Windowed operators: the handling of rows and marks that all of them have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch, Mark
from mavstream_server.columns.column import Ints
from mavstream_server.columns.pieces import Steps
from mavstream_server.operators.operator import Operator, State, SteppedOperator
from mavstream_server.operators.windows.gate import MISSED, Admitted, WindowGate
from mavstream_server.operators.windows.index import WindowIndex


class Skipped(NamedTuple):
    """Counts of windows that will not be answered, and of their rows."""

    windows: int
    """The number of windows that had rows."""
    rows: int
    """The number of rows that are only in these windows, so that they take part in no answer."""


class WindowedOperator(SteppedOperator):
    """Stores the rows of open windows and answers a window when the frontier passes its end.

    For windows by time the frontier is the combined watermark; for windows by rows it is the number of rows
    that every input has delivered.
    """

    def __init__(self, name: str, ports: int, window: TimeWindow | RowWindow, once: bool) -> None:
        super().__init__(name, ports)
        self.windows = WindowIndex(window)
        self.gates = [WindowGate(self.windows, self.counters, once) for _ in range(ports)]
        self._once = once
        self._done = False

    @abstractmethod
    def fold(self, port: int, batch: Batch, admitted: Admitted) -> Steps[None]:
        """Store the rows that were admitted, in steps; there is at least one."""

    @abstractmethod
    def close(self, opened: int, batch: Batch, mark: Mark | None) -> Iterator[None]:
        """Answer all windows before `opened` that have rows, in steps."""

    @abstractmethod
    def skip(self, first: int) -> Skipped:
        """Drop the windows before `first`, which will not be answered."""

    @abstractmethod
    def clear(self) -> None:
        """Drop all rows: the query has ended."""

    def conclude(self, mark: Mark) -> Iterator[None]:
        """Emit a mark after the answers, in steps."""
        self.emit_mark(mark)
        yield from ()

    def settled(self, watermark: int) -> int:
        """Return the watermark to emit: no later answer has an earlier time."""
        return watermark

    @property
    def frontier(self) -> Mark:
        """The frontier: the mark that applies to the output now, even if it was not emitted yet."""
        if self._done:
            return Mark(END_OF_TIME, end=True)
        watermark = self.progress.watermark
        if watermark not in (BEGIN_OF_TIME, END_OF_TIME):
            watermark = self.settled(watermark)
        return Mark(watermark, end=all(self.progress.ended), since=self._answers_since(self.progress.since))

    @property
    def closes_at(self) -> int:
        """The lowest watermark (us) that closes a window by time; below it no input leads to an answer."""
        watermark = self.progress.watermark
        if watermark == BEGIN_OF_TIME or self._done or not self.windows.by_time:
            return BEGIN_OF_TIME
        return self.windows.end(self.windows.first_open(watermark))

    def steps(self, port: int, batch: Batch) -> Iterator[None]:
        """Store the rows, then answer the windows that are complete."""
        if self._done:
            return
        if batch.size:
            admitted = self.gates[port].admit(batch, self._unsettled)
            if admitted.rows is None or len(admitted.rows):
                yield from self.fold(port, batch, admitted)
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if mark is not None and mark.gap is not None and self.windows.by_time:
            mark = self._skip(mark, mark.gap)
        if not self.windows.by_time:
            yield from self._advance(min(gate.count for gate in self.gates), batch, mark)
        elif mark is not None:
            yield from self._advance(mark.watermark, batch, mark)

    @property
    def _unsettled(self) -> bool:
        """Whether an input has not begun yet: it may still announce a gap, which makes windows incomplete."""
        return len(self.gates) > 1 and self.progress.watermark == BEGIN_OF_TIME

    def _advance(self, frontier: int, batch: Batch, mark: Mark | None) -> Iterator[None]:
        over = frontier >= self.windows.until
        first = self._first_window() if self._once else None
        if first is None:
            yield from self.close(self.windows.first_open(frontier), batch, mark)
        elif over or frontier >= self.windows.end(first):
            over = True
            self.count(MISSED, self.skip(first).rows)
            yield from self.close(first + 1, batch, mark)
            for gate in self.gates:
                gate.end(self.windows.end(first))
        if over:
            self._done = True
            self.clear()
            arrival = mark.arrival if mark is not None else int(batch.arrival[-1])
            yield from self.conclude(Mark(END_OF_TIME, arrival, end=True))
        elif mark is not None:
            settled = mark.watermark
            if settled != END_OF_TIME:
                settled = self.settled(settled)
            since = self._answers_since(mark.since)
            yield from self.conclude(Mark(settled, mark.arrival, mark.gap, mark.end, since))

    def _first_window(self) -> int | None:
        """Return the window with which a one-time query ends, or None while it is unknown.

        It is the first complete window if the streams had rows before the query started; otherwise the first
        one in which the streams have a row, whether or not it passed the filters.
        """
        if not self.windows.by_time:
            return self.windows.first
        since = self.progress.since
        return None if since == END_OF_TIME else self._first_answered(since)

    def _first_answered(self, since: int) -> int:
        """Return the first window by time that is answered if rows have the time `since` or later."""
        return max(self.windows.first_at(since), *(gate.first_window for gate in self.gates))

    def _answers_since(self, since: int) -> int:
        """Return the earliest time that an answer can have if rows have the time `since` or later."""
        if since == END_OF_TIME or not self.windows.by_time:
            return since
        return self.first_answer(self._first_answered(since))

    def first_answer(self, window: int) -> int:
        """Return the earliest time that the answer of a window by time can have."""
        return self.windows.end(window) - 1

    def _skip(self, mark: Mark, gap: int) -> Mark:
        """Skip the windows that a gap could affect; returns the mark with the gap in terms of answers."""
        first = self.windows.first_behind(gap)
        if not self.windows.partial:
            skipped = self.skip(first)
            self.count(MISSED, skipped.rows)
            if self.progress.watermark != BEGIN_OF_TIME:  # otherwise nothing could have been answered yet
                self.count("skipped_windows", skipped.windows)
            for gate in self.gates:
                gate.miss(first, self._unsettled)
        return mark._replace(gap=self.windows.end(first - 1) - 1)

    def agrees(self, other: Operator) -> bool:
        """Whether the same windows are open in both, with the same rows.

        At the same position of the same stream this is so when the windows that one of them did not see from
        their beginning are closed, or were skipped by both.
        """
        if not isinstance(other, WindowedOperator) or self._done or other._done or not super().agrees(other):
            return False
        opened = self.windows.first_open(self.progress.watermark)
        pairs = zip(self.gates, other.gates, strict=True)
        return self.windows.by_time and all(
            one.first_window == two.first_window or max(one.first_window, two.first_window) <= opened
            for one, two in pairs
        )

    def work_for(self, other: WindowedOperator) -> None:
        """Work on behalf of another operator that agrees with this one.

        The first window that each of them has seen only matters for whether late rows count as late or as
        missed; `missed_by` returns the difference.
        """
        for gate, another in zip(self.gates, other.gates, strict=True):
            gate.first_window = min(gate.first_window, another.first_window)
            gate.sharers.setdefault(another.first_window, 0)

    def take_over(self, state: State) -> None:
        """Restore the state of an operator that worked for this one; windows that this one missed stay so."""
        firsts = [gate.first_window for gate in self.gates]
        self.load(state)
        for gate, first in zip(self.gates, firsts, strict=True):
            gate.first_window = max(gate.first_window, first)

    def work_only_for(self, others: Iterable[WindowedOperator]) -> None:
        """Stop counting missed rows for operators that are not among `others`."""
        kept = list(others)
        for port, gate in enumerate(self.gates):
            firsts = {other.gates[port].first_window for other in kept}
            gate.sharers = {first: rows for first, rows in gate.sharers.items() if first in firsts}

    def missed_by(self, other: WindowedOperator) -> int:
        """Return how many of the rows that this operator counted as late are missed rows for the other."""
        gates = zip(self.gates, other.gates, strict=True)
        return sum(gate.sharers.get(another.first_window, 0) for gate, another in gates)

    def save(self) -> State:
        """Return the state of the gates and whether the query has ended."""
        return {**super().save(), "gates": [gate.save() for gate in self.gates], "done": self._done}

    def load(self, state: State) -> None:
        """Restore the state of the gates."""
        super().load(state)
        for gate, saved in zip(self.gates, state["gates"], strict=True):
            gate.load(saved, self.counters)
        self._done = state["done"]


def effective_times(batch: Batch) -> Ints:
    """Return the times of rows, where a late row gets the watermark ahead of it (us)."""
    assert batch.time is not None
    if batch.row_watermark is None:
        return batch.time
    return np.maximum(batch.time, batch.row_watermark)


def possible_since(ends: Ints, batch: Batch, mark: Mark) -> Ints:
    """Return when the answers of windows became possible (arrival, ns), given the batch that closed them.

    That is the arrival of the first row whose watermark is at or after the window's end, else of the mark: a
    batch may be a train of frames that arrived one after the other.
    """
    arrivals = np.full(len(ends), mark.arrival)
    if batch.size and batch.row_watermark is not None:
        rows = np.searchsorted(batch.row_watermark, ends)
        inside = np.flatnonzero(rows < batch.size)
        arrivals[inside] = batch.arrival.take(rows.take(inside))
    return arrivals
