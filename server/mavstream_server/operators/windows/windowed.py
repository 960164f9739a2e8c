"""Windowed operators: what all of them do when rows and marks come in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from mavstream_protocol.windows import RowWindow, TimeWindow
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch, Mark
from mavstream_server.columns.column import Ints
from mavstream_server.operators.operator import Operator, State
from mavstream_server.operators.windows.gate import MISSED, Admitted, WindowGate
from mavstream_server.operators.windows.index import WindowIndex


class Skipped(NamedTuple):
    """What was given up of windows that are not answered."""

    windows: int
    """Windows that had rows."""
    rows: int
    """Rows that were in these alone, so that they have part in no answer."""


class WindowedOperator(Operator):
    """Keeps the rows of open windows and answers a window when the frontier passes its end.

    The frontier is the joint watermark for windows by time; for windows by rows it is the number of rows
    that have come from every input.
    """

    def __init__(self, name: str, ports: int, window: TimeWindow | RowWindow, once: bool) -> None:
        super().__init__(name, ports)
        self.windows = WindowIndex(window)
        self.gates = [WindowGate(self.windows, self.counters, once) for _ in range(ports)]
        self._once = once
        self._done = False

    @abstractmethod
    def fold(self, port: int, batch: Batch, admitted: Admitted) -> None:
        """Keep the rows that were admitted; there is at least one."""

    @abstractmethod
    def close(self, opened: int, batch: Batch, mark: Mark | None) -> None:
        """Answer all windows before `opened` that have rows."""

    @abstractmethod
    def skip(self, first: int) -> Skipped:
        """Drop the windows before one, which are not answered any more."""

    @abstractmethod
    def clear(self) -> None:
        """Drop everything: the query has ended."""

    def settled(self, watermark: int) -> int:
        """Return how far time is settled above: no answer to come is before this."""
        return watermark

    @property
    def told(self) -> Mark:
        """What holds above it by now; windows by rows may not have said so yet."""
        if self._done:
            return Mark(END_OF_TIME, end=True)
        watermark = self.progress.watermark
        if watermark not in (BEGIN_OF_TIME, END_OF_TIME):
            watermark = self.settled(watermark)
        return Mark(watermark, end=all(self.progress.ended), since=self._answers_since(self.progress.since))

    def process(self, port: int, batch: Batch) -> None:
        """Keep the rows, then answer the windows that are complete."""
        if self._done:
            return
        if batch.size:
            admitted = self.gates[port].admit(batch, self._unsettled)
            if len(admitted.panes):
                self.fold(port, batch, admitted)
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if mark is not None and mark.gap is not None and self.windows.by_time:
            mark = self._skip(mark, mark.gap)
        if not self.windows.by_time:
            self._advance(min(gate.count for gate in self.gates), batch, mark)
        elif mark is not None:
            self._advance(mark.watermark, batch, mark)

    @property
    def _unsettled(self) -> bool:
        """Whether an input has yet to begin: it may tell then which windows are not whole."""
        return len(self.gates) > 1 and self.progress.watermark == BEGIN_OF_TIME

    def _advance(self, frontier: int, batch: Batch, mark: Mark | None) -> None:
        over = frontier >= self.windows.until
        first = self._first_window() if self._once else None
        if first is None:
            self.close(self.windows.first_open(frontier), batch, mark)
        elif over or frontier >= self.windows.end(first):
            over = True
            self.count(MISSED, self.skip(first).rows)
            self.close(first + 1, batch, mark)
            for gate in self.gates:
                gate.end(self.windows.end(first))
        if over:
            self._done = True
            self.clear()
            arrival = mark.arrival if mark is not None else int(batch.arrival[-1])
            self.emit_mark(Mark(END_OF_TIME, arrival, end=True))
        elif mark is not None:
            settled = mark.watermark
            if settled != END_OF_TIME:
                settled = self.settled(settled)
            self.emit_mark(mark._replace(watermark=settled, since=self._answers_since(mark.since)))

    def _first_window(self) -> int | None:
        """Return the window that a one-time query ends with, or None while that is not known.

        It is the first whole one, if rows were there before the query; else the first in which the streams
        below have a row, whether that passed the filters or not.
        """
        if not self.windows.by_time:
            return self.windows.first
        since = self.progress.since
        return None if since == END_OF_TIME else self._first_whole(since)

    def _first_whole(self, since: int) -> int:
        """Return the first window by time that is answered, where rows have this time or a later one."""
        return max(self.windows.first_at(since), *(gate.first_window for gate in self.gates))

    def _answers_since(self, since: int) -> int:
        """Return the first time that an answer can have, where rows have this one."""
        if since == END_OF_TIME or not self.windows.by_time:
            return since
        return self.first_answer(self._first_whole(since))

    def first_answer(self, window: int) -> int:
        """Return the earliest time that the answer of a window by time can have."""
        return self.windows.end(window) - 1

    def _skip(self, mark: Mark, gap: int) -> Mark:
        """Give up the windows that missing rows could have fallen into, and say what is missing above."""
        first = self.windows.first_behind(gap)
        if not self.windows.partial:
            skipped = self.skip(first)
            self.count(MISSED, skipped.rows)
            if self.progress.watermark != BEGIN_OF_TIME:  # else nothing could have been answered yet
                self.count("skipped_windows", skipped.windows)
            for gate in self.gates:
                gate.miss(first, self._unsettled)
        return mark._replace(gap=self.windows.end(first - 1) - 1)

    def agrees(self, other: Operator) -> bool:
        """Whether all windows that are open, and none else, hold the same rows in both.

        That is so at the same place of the same stream when the windows that one of them has not seen from
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
        """Take over from another that agrees.

        Which windows were the first to be seen does not matter any more, but for whether rows that come too
        late count as late or as missed: `missed_by` tells the difference.
        """
        for gate, another in zip(self.gates, other.gates, strict=True):
            gate.first_window = min(gate.first_window, another.first_window)
            gate.sharers.setdefault(another.first_window, 0)

    def take_over(self, state: State) -> None:
        """Go on with the state of one that has worked for this; windows before its own first stay missed."""
        firsts = [gate.first_window for gate in self.gates]
        self.load(state)
        for gate, first in zip(self.gates, firsts, strict=True):
            gate.first_window = max(gate.first_window, first)

    def work_only_for(self, others: Iterable[WindowedOperator]) -> None:
        """Count no more for those that are not among these."""
        kept = list(others)
        for place, gate in enumerate(self.gates):
            firsts = {other.gates[place].first_window for other in kept}
            gate.sharers = {first: rows for first, rows in gate.sharers.items() if first in firsts}

    def missed_by(self, other: WindowedOperator) -> int:
        """Return how many of the rows that were counted as late here the other one counts as missed."""
        gates = zip(self.gates, other.gates, strict=True)
        return sum(gate.sharers.get(another.first_window, 0) for gate, another in gates)

    def save(self) -> State:
        """Return where the windows stand."""
        return {**super().save(), "gates": [gate.save() for gate in self.gates], "done": self._done}

    def load(self, state: State) -> None:
        """Take over where the windows stood."""
        super().load(state)
        for gate, saved in zip(self.gates, state["gates"], strict=True):
            gate.load(saved, self.counters)
        self._done = state["done"]


def effective_times(batch: Batch) -> Ints:
    """Return when rows count as having come: a late one no earlier than the watermark ahead of it."""
    assert batch.time is not None
    if batch.row_watermark is None:
        return batch.time
    return np.maximum(batch.time, batch.row_watermark)


def possible_since(ends: Ints, batch: Batch, mark: Mark) -> Ints:
    """Return when answers of windows with these ends became possible, closed by a batch and its mark.

    That is the arrival of the first row that stands behind the window's end; a batch may be a train of
    frames that arrived one after the other.
    """
    arrivals = np.full(len(ends), mark.arrival)
    if batch.size and batch.row_watermark is not None:
        rows = np.searchsorted(batch.row_watermark, ends)
        inside = np.flatnonzero(rows < batch.size)
        arrivals[inside] = batch.arrival.take(rows.take(inside))
    return arrivals
