"""Session gates: admit the rows that can belong to open sessions."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mavstream_server.columns.batch import END_OF_TIME, Batch
from mavstream_server.operators.windows.gate import LATE, OUTSIDE, Admitted, WindowGate
from mavstream_server.operators.windows.index import WindowIndex


class SessionGate(WindowGate):
    """Admits the rows that are not before the watermark ahead of them.

    Which session a row belongs to depends on other rows, so that only a rule about the row alone gives the
    same answer however inputs take turns. It also means that no row is admitted that could have extended a
    session after that was closed.
    """

    def __init__(
        self, panes: WindowIndex, begin: int | None, counters: Counter[str], once: bool = False
    ) -> None:
        super().__init__(panes, counters, once)
        self._begin = begin

    def admit(self, batch: Batch, unsettled: bool = False) -> Admitted:
        """Return the rows of sessions, each with its pane, and count the others by reason."""
        times, watermarks = self.coordinates(batch), batch.row_watermark
        drop = None if self._windows.until == END_OF_TIME else self._after_the_end(batch, times)
        if self._begin is not None:
            drop = self._drop(OUTSIDE, times < self._begin, drop, batch)
        if watermarks is not None and watermarks is not batch.time:
            drop = self._drop(LATE, times < watermarks, drop, batch)
        panes = self._windows.panes(times, watermarks is batch.time)
        if drop is None or not drop.any():
            return Admitted(None, panes, None)
        rows = np.flatnonzero(~drop)
        return Admitted(rows, panes.take(rows), None)
