"""Window arithmetic: which windows a row falls into, and which windows are closed."""

from __future__ import annotations

from math import gcd

import numpy as np

from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.columns.column import Ints, Mask
from mavstream_server.operators.windows.panes import Panes

# With so many rows per pane, a search for each pane's first row takes less time than a division per row.
_ROWS_PER_PANE = 64


class WindowIndex:
    """Numbers the windows of a specification: window k covers [origin + k * step, + size).

    Coordinates are microseconds for windows by time and row numbers for windows by rows. Overlapping windows
    share panes, the largest pieces that overlapping windows have in common: a row is processed once per pane,
    not once per window. Windows that do not overlap have one pane each.
    """

    def __init__(self, window: TimeWindow | RowWindow) -> None:
        self.by_time = isinstance(window, TimeWindow)
        self.size: int = window.size
        self.step: int = window.step
        self.origin: int = window.begin or 0
        self.first = 0 if window.begin is not None or not self.by_time else None
        """The number of the first window, or None if windows have no beginning."""
        self.until: int = END_OF_TIME if window.until is None else window.until
        self.overlapping = self.size > self.step
        self.pane = gcd(self.size, self.step) if self.overlapping else self.step
        self.panes_per_window = self.size // self.pane if self.overlapping else 1
        self.panes_per_step = self.step // self.pane
        self.partial = window.partial

    def panes(self, coordinates: Ints, ordered: bool) -> Panes:
        """Return the pane of each coordinate; `ordered` coordinates never decrease."""
        if ordered:
            low = (int(coordinates[0]) - self.origin) // self.pane
            high = (int(coordinates[-1]) - self.origin) // self.pane
            if low == high:
                return Panes.one(low, len(coordinates))
            if high - low <= len(coordinates) // _ROWS_PER_PANE:
                starts = self.origin + self.pane * np.arange(low + 1, high + 1)
                return Panes.between(low, coordinates.searchsorted(starts), len(coordinates))
        if self.origin:
            coordinates = coordinates - self.origin
        return Panes.of(coordinates if self.pane == 1 else coordinates // self.pane)

    def outside(self, panes: Panes, coordinates: Ints) -> Mask | None:
        """Return which rows are before `begin` or between two windows, `until` aside; None if none are."""
        found: Mask | None = None
        if self.first is not None and panes.low < 0:
            found = panes.numbers < 0
        if self.step > self.size:
            between = (coordinates - self.origin) % self.step >= self.size
            found = between if found is None else found | between
        return found

    def start(self, window: int) -> int:
        """Return the coordinate at which a window begins."""
        return self.origin + window * self.step

    def end(self, window: int) -> int:
        """Return the coordinate at which a window ends: at `until` if that is earlier."""
        return min(self.start(window) + self.size, self.until)

    def starts(self, windows: Ints) -> Ints:
        """Return the coordinates at which windows begin."""
        return self.origin + windows * self.step

    def ends(self, windows: Ints) -> Ints:
        """Return the coordinates at which windows end."""
        return np.minimum(self.starts(windows) + self.size, self.until)

    def first_open(self, frontier: int) -> int:
        """Return the first window that ends after the frontier; those before it are closed."""
        if frontier >= self.until:
            return END_OF_TIME
        if frontier == BEGIN_OF_TIME:
            return BEGIN_OF_TIME if self.first is None else self.first
        return self.first_at(frontier)

    def first_behind(self, coordinate: int) -> int:
        """Return the first window that begins after a coordinate."""
        window = (coordinate - self.origin) // self.step + 1
        return window if self.first is None else max(window, self.first)

    def first_at(self, coordinate: int) -> int:
        """Return the first window that ends after a coordinate, `until` aside."""
        window = (coordinate - self.origin - self.size) // self.step + 1
        return window if self.first is None else max(window, self.first)

    def first_of_pane(self, pane: int) -> int:
        """Return the first window that covers a pane."""
        window = (pane - self.panes_per_window) // self.panes_per_step + 1
        return window if self.first is None else max(window, self.first)

    def firsts_of_panes(self, panes: Ints) -> Ints:
        """Return the first window that covers each pane."""
        windows = (panes - self.panes_per_window) // self.panes_per_step + 1
        return windows if self.first is None else np.maximum(windows, self.first)

    def last_of_pane(self, pane: int) -> int:
        """Return the last window that covers a pane."""
        return pane // self.panes_per_step

    def lasts_of_panes(self, panes: Ints) -> Ints:
        """Return the last window that covers each pane."""
        return panes // self.panes_per_step

    def first_pane(self, window: int) -> int:
        """Return the first pane of a window."""
        return window * self.panes_per_step

    def first_opens(self, frontiers: Ints) -> Ints:
        """Return, for each frontier, the first window that ends after it."""
        # BEGIN_OF_TIME and END_OF_TIME would overflow in the arithmetic.
        safe = np.minimum(np.maximum(frontiers, -(1 << 62)), 1 << 62)
        windows = (safe - self.origin - self.size) // self.step + 1
        windows = np.where(frontiers >= self.until, END_OF_TIME, windows)
        return windows if self.first is None else np.maximum(windows, self.first)
