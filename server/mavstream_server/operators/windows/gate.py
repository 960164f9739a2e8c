"""The gate of a windowed operator: which rows of an input still belong to which windows."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch
from mavstream_server.columns.column import Ints
from mavstream_server.operators.windows.index import WindowIndex


class Admitted(NamedTuple):
    """The rows of a batch that fall into open windows."""

    rows: Ints | None
    """Their numbers in the batch; None for all."""
    panes: Ints
    """The pane of each."""
    firsts: Ints | None
    """For rows that came too late for some of their windows: the first window they are in time for
    (for the others the first one of their pane). None if there are no such rows."""


class WindowGate:
    """Admits the rows of one input.

    Whether a row is late is told by the watermark that stood ahead of it in its own stream, never by
    what happens to be closed already: so the answer is the same however inputs take turns.
    """

    def __init__(self, windows: WindowIndex, counters: Counter[str]) -> None:
        self._windows = windows
        self.counters = counters
        self.count = 0
        """Rows seen, which is the coordinate of the next one in windows by rows."""
        self.first_window = BEGIN_OF_TIME if windows.first is None else windows.first
        """Windows before this one are not answered: they began before the query did, or in a pause."""

    def coordinates(self, batch: Batch) -> Ints:
        """Return where the rows stand: their times, or their numbers."""
        first, self.count = self.count, self.count + batch.size
        if not self._windows.by_time:
            return np.arange(first, self.count)
        assert batch.time is not None
        return batch.time

    def admit(self, batch: Batch) -> Admitted:
        """Return which rows count, and count those that are late."""
        windows = self._windows
        coordinates = self.coordinates(batch)
        panes = windows.panes(coordinates)
        lowest = int(panes.min())
        drop = windows.outside(panes, coordinates)
        if self.first_window != BEGIN_OF_TIME:
            first_pane = windows.first_pane(self.first_window)
            if lowest < first_pane:
                early = panes < first_pane
                drop = early if drop is None else drop | early
        firsts: Ints | None = None
        if windows.by_time and self._some_late(batch, lowest):
            assert batch.row_watermark is not None
            opens = windows.first_opens(batch.row_watermark)
            late = windows.lasts_of_panes(panes) < opens
            if late.any():
                drop, late = (late, late) if drop is None else (drop | late, late & ~drop)
                self.counters["late"] += int(np.count_nonzero(late))
            whole = windows.firsts_of_panes(panes)
            if windows.overlapping and (opens > whole).any():
                firsts = np.maximum(opens, whole)
        if drop is None or not drop.any():
            return Admitted(None, panes, firsts)
        rows = np.flatnonzero(~drop)
        return Admitted(rows, panes.take(rows), None if firsts is None else firsts.take(rows))

    def _some_late(self, batch: Batch, lowest: int) -> bool:
        """Tell if a row can be late: watermarks never fall along a batch, so the last one decides."""
        watermarks = batch.row_watermark
        if watermarks is None or watermarks is batch.time:
            return False
        return self._windows.first_open(int(watermarks[-1])) > self._windows.first_of_pane(lowest)

    def save(self) -> dict[str, int]:
        """Return where the gate stands."""
        return {"count": self.count, "first_window": self.first_window}

    def load(self, state: dict[str, int], counters: Counter[str]) -> None:
        """Take over where a gate stood; `counters` are the operator's new ones."""
        self.count, self.first_window, self.counters = state["count"], state["first_window"], counters
