"""Windowed operators: what all of them do when rows and marks come in."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mavstream_protocol.windows import RowWindow, TimeWindow
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch, Mark
from mavstream_server.columns.column import Ints
from mavstream_server.operators.operator import Operator, State
from mavstream_server.operators.windows.gate import Admitted, WindowGate
from mavstream_server.operators.windows.index import WindowIndex


class WindowedOperator(Operator):
    """Keeps the rows of open windows and answers a window when the frontier passes its end.

    The frontier is the joint watermark for windows by time; for windows by rows it is the number of rows
    that have come from every input.
    """

    def __init__(self, name: str, ports: int, window: TimeWindow | RowWindow, once: bool) -> None:
        super().__init__(name, ports)
        self.windows = WindowIndex(window)
        self.gates = [WindowGate(self.windows, self.counters) for _ in range(ports)]
        self._once = once
        self._done = False

    @abstractmethod
    def fold(self, port: int, batch: Batch, admitted: Admitted) -> None:
        """Keep the rows that were admitted; there is at least one."""

    @abstractmethod
    def close(self, opened: int, batch: Batch, mark: Mark | None, once: bool) -> bool:
        """Answer all windows before `opened`, or only the first that has an answer if `once`.

        Returns whether there was an answer.
        """

    @abstractmethod
    def skip(self, first: int) -> int:
        """Drop the windows before one; returns how many of them had rows."""

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
        return Mark(watermark, end=all(self.progress.ended))

    def process(self, port: int, batch: Batch) -> None:
        """Keep the rows, then answer the windows that are complete."""
        if self._done:
            return
        if batch.size:
            admitted = self.gates[port].admit(batch)
            if len(admitted.panes):
                self.fold(port, batch, admitted)
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if mark is not None and mark.gap is not None and self.windows.by_time:
            mark = self._skip(mark, mark.gap)
        if not self.windows.by_time:
            self._advance(min(gate.count for gate in self.gates), batch, mark)
        elif mark is not None:
            self._advance(mark.watermark, batch, mark)

    def _advance(self, frontier: int, batch: Batch, mark: Mark | None) -> None:
        answered = self.close(self.windows.first_open(frontier), batch, mark, self._once)
        if frontier >= self.windows.until or (self._once and answered):
            self._done = True
            self.clear()
            arrival = mark.arrival if mark is not None else int(batch.arrival[-1])
            self.emit_mark(Mark(END_OF_TIME, arrival, end=True))
        elif mark is not None:
            settled = mark.watermark
            if settled != END_OF_TIME:
                settled = self.settled(settled)
            self.emit_mark(mark._replace(watermark=settled))

    def _skip(self, mark: Mark, gap: int) -> Mark:
        """Give up the windows that missing rows could have fallen into, and say what is missing above."""
        first = self.windows.first_behind(gap)
        if not self.windows.partial:
            for gate in self.gates:
                gate.first_window = max(gate.first_window, first)
            self.counters["skipped_windows"] += self.skip(first)
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
        """Take over from another that agrees: rows are late here that are late there.

        Which windows were the first to be seen does not matter any more, but for what counts as late.
        """
        for gate, another in zip(self.gates, other.gates, strict=True):
            gate.first_window = min(gate.first_window, another.first_window)

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
