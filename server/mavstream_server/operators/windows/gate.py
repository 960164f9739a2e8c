"""Window gates: assign the rows of an input to open windows and count those that belong to none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch
from mavstream_server.columns.column import Ints, Mask
from mavstream_server.operators.windows.index import WindowIndex
from mavstream_server.operators.windows.panes import Panes

LATE = "late"
"""The counter of rows whose windows had all closed when they arrived."""
MISSED = "missed"
"""The counter of rows whose windows all began before the query, or lost rows in a pause or to retention."""
OUTSIDE = "outside"
"""The counter of rows that belong to no window: they are before `begin`, or between two windows."""


class Admitted(NamedTuple):
    """The rows of a batch that fall into open windows."""

    rows: Ints | None
    """Indexes of the rows in the batch; None for all rows."""
    panes: Panes
    """The pane of each row."""
    firsts: Ints | None
    """The first window that each row counts for: for rows that are late for some of their windows the first
    one that was still open, for others the first window of their pane. None if all rows are in time."""


class WindowGate:
    """Admits the rows of one input and counts, by reason, those that take part in no window.

    Whether a row is late is decided by the watermark ahead of it in its own stream, never by which windows
    happen to be closed already: so the answer does not depend on how inputs take turns. Rows after the end
    of all windows (`until`, or the window that ends a one-time query) are not counted, because how many of
    them are read depends on the batches.
    """

    def __init__(self, windows: WindowIndex, counters: Counter[str], once: bool = False) -> None:
        self._windows = windows
        self.counters = counters
        self.count = 0
        """The number of rows seen, which is the coordinate of the next row in windows by rows."""
        self.first_window = BEGIN_OF_TIME if windows.first is None else windows.first
        """The first window that is answered; earlier ones began before the query did, or in a pause."""
        self.sharers: dict[int, int] = {}
        """For queries that share this gate, by their first window: rows that are counted as late here, but
        are missed rows for such a query."""
        self._late: list[Ints] = []  # last windows of late rows that may still turn out to be missed rows
        # Where a one-time query ends is known only at its end. Until then, the watermarks of dropped rows.
        self._dropped: list[tuple[str, Ints]] | None = [] if once else None

    def coordinates(self, batch: Batch) -> Ints:
        """Return the coordinates of the rows: their times (us), or their row numbers."""
        first, self.count = self.count, self.count + batch.size
        if not self._windows.by_time:
            return np.arange(first, self.count)
        assert batch.time is not None
        return batch.time

    def admit(self, batch: Batch, unsettled: bool = False) -> Admitted:
        """Return the rows that fall into open windows, and count the others by reason.

        `unsettled` is true while another input may still announce a gap.
        """
        windows = self._windows
        coordinates = self.coordinates(batch)
        ordered = not windows.by_time or batch.row_watermark is batch.time
        panes = windows.panes(coordinates, ordered)
        drop = None if windows.until == END_OF_TIME else self._after_the_end(batch, coordinates)
        outside = windows.outside(panes, coordinates)
        if outside is not None:
            drop = self._drop(OUTSIDE, outside, drop, batch)
        if self.first_window != BEGIN_OF_TIME:
            first_pane = windows.first_pane(self.first_window)
            if panes.low < first_pane:
                drop = self._drop(MISSED, panes.numbers < first_pane, drop, batch)
        firsts: Ints | None = None
        if windows.by_time and self._may_be_late(batch, panes.low):
            assert batch.row_watermark is not None
            opens = windows.first_opens(batch.row_watermark)
            late = windows.lasts_of_panes(panes.numbers) < opens
            if late.any():
                if self.sharers or unsettled:
                    lasts = windows.lasts_of_panes(panes.numbers[late if drop is None else late & ~drop])
                    self._count_for_sharers(lasts)
                    if unsettled:
                        self._late.append(lasts)
                drop = self._drop(LATE, late, drop, batch)
            whole = windows.firsts_of_panes(panes.numbers)
            if windows.overlapping and (opens > whole).any():
                firsts = np.where(opens > whole, np.maximum(opens, self.first_window), whole)
        if drop is None or not drop.any():
            return Admitted(None, panes, firsts)
        rows = np.flatnonzero(~drop)
        return Admitted(rows, panes.take(rows), None if firsts is None else firsts.take(rows))

    def _after_the_end(self, batch: Batch, coordinates: Ints) -> Mask:
        """Return which rows are at or after `until`, or arrived when the watermark was."""
        until = self._windows.until
        behind: Mask = coordinates >= until
        if self._windows.by_time and batch.row_watermark is not None:
            behind |= batch.row_watermark >= until
        return behind

    def _may_be_late(self, batch: Batch, lowest: int) -> bool:
        """Return whether a row can be late: watermarks never decrease in a batch, so the last one decides."""
        watermarks = batch.row_watermark
        if watermarks is None or watermarks is batch.time:
            return False
        return self._windows.first_open(int(watermarks[-1])) > self._windows.first_of_pane(lowest)

    def _drop(self, reason: str, rows: Mask, dropped: Mask | None, batch: Batch) -> Mask:
        """Count rows that were not dropped for another reason; returns all dropped rows."""
        new = rows if dropped is None else rows & ~dropped
        count = int(np.count_nonzero(new))
        if count:
            self.counters[reason] += count
            if self._dropped is not None and batch.row_watermark is not None:
                self._dropped.append((reason, batch.row_watermark[new]))
        return rows if dropped is None else dropped | rows

    def _count_for_sharers(self, lasts: Ints) -> None:
        for first in self.sharers:
            if first > self.first_window:
                self.sharers[first] += int(np.count_nonzero(lasts < first))

    def miss(self, first: int, unsettled: bool) -> None:
        """Leave the windows before `first` unanswered; while `unsettled`, their late rows become missed."""
        self.first_window = max(self.first_window, first)
        if unsettled:
            missed = sum(int(np.count_nonzero(lasts < first)) for lasts in self._late)
            self._late = [lasts[lasts >= first] for lasts in self._late]
            if missed:
                self.counters[LATE] -= missed
                self.counters[MISSED] += missed

    def end(self, end: int) -> None:
        """End a one-time query at the end of a window: rows that were dropped after it are not counted."""
        for reason, watermarks in self._dropped or ():
            self.counters[reason] -= int(np.count_nonzero(watermarks >= end))
        self._dropped = None

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        dropped = self._dropped or ()
        left_out = {reason: _joined(dropped, reason) for reason in {reason for reason, _ in dropped}}
        return {
            "count": self.count,
            "first_window": self.first_window,
            "left_out": left_out,
            "late": self._late,
        }

    def load(self, state: dict[str, Any], counters: Counter[str]) -> None:
        """Restore the state from a snapshot; `counters` are the operator's new ones."""
        self.count, self.first_window, self.counters = state["count"], state["first_window"], counters
        self._late = state["late"]
        if self._dropped is not None:
            self._dropped = list(state["left_out"].items())


def _joined(dropped: Iterable[tuple[str, Ints]], reason: str) -> Ints:
    """Return the watermarks of all rows that were dropped for a reason."""
    return np.concatenate([watermarks for why, watermarks in dropped if why == reason])
