"""The gate of a windowed operator: which rows of an input still belong to which windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch
from mavstream_server.columns.column import Ints, Mask
from mavstream_server.operators.windows.index import WindowIndex

LATE = "late"
"""All windows of the row had closed when it came."""
MISSED = "missed"
"""All windows of the row began before the query's first row, or lost rows in a pause or to retention."""
OUTSIDE = "outside"
"""The row belongs to no window: it is before `begin`, or between two windows."""


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
    """Admits the rows of one input and counts, by reason, those that take part in no window.

    Whether a row is late is told by the watermark that stood ahead of it in its own stream, never by
    what happens to be closed already: so the answer is the same however inputs take turns. Rows behind the
    end of the windows (`until`, or the window that ends a one-time query) are not counted: how many
    of them are read depends on the batches.
    """

    def __init__(self, windows: WindowIndex, counters: Counter[str], once: bool = False) -> None:
        self._windows = windows
        self.counters = counters
        self.count = 0
        """Rows seen, which is the coordinate of the next one in windows by rows."""
        self.first_window = BEGIN_OF_TIME if windows.first is None else windows.first
        """Windows before this one are not answered: they began before the query did, or in a pause."""
        self.sharers: dict[int, int] = {}
        """By the first window of queries that share this gate: rows late here that such a query missed."""
        self._late: list[Ints] = []  # the last windows of late rows that may yet turn out to be missed
        # Where a one-time query ends is known at its end: till then, the watermarks of rows left out.
        self._left_out: list[tuple[str, Ints]] | None = [] if once else None

    def coordinates(self, batch: Batch) -> Ints:
        """Return where the rows stand: their times, or their numbers."""
        first, self.count = self.count, self.count + batch.size
        if not self._windows.by_time:
            return np.arange(first, self.count)
        assert batch.time is not None
        return batch.time

    def admit(self, batch: Batch, unsettled: bool = False) -> Admitted:
        """Return which rows count, and count those that do not.

        `unsettled` says that another input may still tell of rows that it has missed.
        """
        windows = self._windows
        coordinates = self.coordinates(batch)
        panes = windows.panes(coordinates)
        lowest = int(panes.min())
        drop = None if windows.until == END_OF_TIME else self._behind_the_end(batch, coordinates)
        outside = windows.outside(panes, coordinates)
        if outside is not None:
            drop = self._leave_out(OUTSIDE, outside, drop, batch)
        if self.first_window != BEGIN_OF_TIME:
            first_pane = windows.first_pane(self.first_window)
            if lowest < first_pane:
                drop = self._leave_out(MISSED, panes < first_pane, drop, batch)
        firsts: Ints | None = None
        if windows.by_time and self._some_late(batch, lowest):
            assert batch.row_watermark is not None
            opens = windows.first_opens(batch.row_watermark)
            late = windows.lasts_of_panes(panes) < opens
            if late.any():
                if self.sharers or unsettled:
                    lasts = windows.lasts_of_panes(panes[late if drop is None else late & ~drop])
                    self._count_for_sharers(lasts)
                    if unsettled:
                        self._late.append(lasts)
                drop = self._leave_out(LATE, late, drop, batch)
            whole = windows.firsts_of_panes(panes)
            if windows.overlapping and (opens > whole).any():
                firsts = np.where(opens > whole, np.maximum(opens, self.first_window), whole)
        if drop is None or not drop.any():
            return Admitted(None, panes, firsts)
        rows = np.flatnonzero(~drop)
        return Admitted(rows, panes.take(rows), None if firsts is None else firsts.take(rows))

    def _behind_the_end(self, batch: Batch, coordinates: Ints) -> Mask:
        """Return which rows are behind `until`, or came when time had."""
        until = self._windows.until
        behind: Mask = coordinates >= until
        if self._windows.by_time and batch.row_watermark is not None:
            behind |= batch.row_watermark >= until
        return behind

    def _some_late(self, batch: Batch, lowest: int) -> bool:
        """Tell if a row can be late: watermarks never fall along a batch, so the last one decides."""
        watermarks = batch.row_watermark
        if watermarks is None or watermarks is batch.time:
            return False
        return self._windows.first_open(int(watermarks[-1])) > self._windows.first_of_pane(lowest)

    def _leave_out(self, reason: str, rows: Mask, dropped: Mask | None, batch: Batch) -> Mask:
        """Count rows that were not dropped for another reason; return all that are dropped."""
        new = rows if dropped is None else rows & ~dropped
        count = int(np.count_nonzero(new))
        if count:
            self.counters[reason] += count
            if self._left_out is not None and batch.row_watermark is not None:
                self._left_out.append((reason, batch.row_watermark[new]))
        return rows if dropped is None else dropped | rows

    def _count_for_sharers(self, lasts: Ints) -> None:
        for first in self.sharers:
            if first > self.first_window:
                self.sharers[first] += int(np.count_nonzero(lasts < first))

    def miss(self, first: int, unsettled: bool) -> None:
        """Leave windows before one unanswered; while that is `unsettled`, their late rows count as missed."""
        self.first_window = max(self.first_window, first)
        if unsettled:
            missed = sum(int(np.count_nonzero(lasts < first)) for lasts in self._late)
            self._late = [lasts[lasts >= first] for lasts in self._late]
            if missed:
                self.counters[LATE] -= missed
                self.counters[MISSED] += missed

    def end(self, end: int) -> None:
        """A one-time query has ended with a window's end: rows behind that do not count."""
        for reason, watermarks in self._left_out or ():
            self.counters[reason] -= int(np.count_nonzero(watermarks >= end))
        self._left_out = None

    def save(self) -> dict[str, Any]:
        """Return where the gate stands."""
        parts = self._left_out or ()
        left_out = {reason: _joined(parts, reason) for reason in {reason for reason, _ in parts}}
        return {
            "count": self.count,
            "first_window": self.first_window,
            "left_out": left_out,
            "late": self._late,
        }

    def load(self, state: dict[str, Any], counters: Counter[str]) -> None:
        """Take over where a gate stood; `counters` are the operator's new ones."""
        self.count, self.first_window, self.counters = state["count"], state["first_window"], counters
        self._late = state["late"]
        if self._left_out is not None:
            self._left_out = list(state["left_out"].items())


def _joined(parts: Iterable[tuple[str, Ints]], reason: str) -> Ints:
    """Return all watermarks of rows that were left out for a reason."""
    return np.concatenate([watermarks for why, watermarks in parts if why == reason])
