"""First time: the time from which on windows count for a one-time query, tracked per source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch
from mavstream_server.log.cursor import Span
from mavstream_server.log.format.layout import FrameKind

_TIME_PASSES = (FrameKind.CLOCK, FrameKind.WATERMARK)


class FirstTime:
    """The earliest time that is relevant for a source, in microseconds.

    It is the earliest time of the rows that were read, where a late row counts with the watermark ahead of it
    instead of its own time. If the stream had rows before the query started, it is the latest time of those;
    if time advances without rows, the time of the first mark. Marks from before the start do not count.
    """

    def __init__(self, started: int | None) -> None:
        """`started` is when the query started (arrival time, us); older marks do not count."""
        self._started = BEGIN_OF_TIME if started is None else started * 1000
        self._base = BEGIN_OF_TIME  # the watermark at the start of the query
        self._lowest = END_OF_TIME
        self._begun = False

    @property
    def time(self) -> int:
        """The earliest time so far (us); END_OF_TIME while nothing was read."""
        return max(self._lowest, self._base) if self._begun else END_OF_TIME

    def missed(self, latest: int) -> None:
        """Note that the stream had rows up to a time before the start; for streams with event time."""
        self._lowest = min(self._lowest, latest)

    def read(self, spans: Sequence[Span], batch: Batch) -> None:
        """Update the time from the frames that were read; `batch` has all their rows."""
        if not self._begun:
            self._look_at_marks(spans)
        if batch.size and self._may_change(batch):
            assert batch.time is not None
            assert batch.row_watermark is not None
            self._begun = True
            lowest = batch.time[0] if batch.time is batch.row_watermark else _lowest(batch)
            self._lowest = min(self._lowest, int(lowest))

    def answered(self, batch: Batch) -> None:
        """Update the time from results of another query, of which marks alone do not count."""
        if batch.size and batch.time is not None:
            self._begun = True
            ahead = batch.time if batch.row_watermark is None else batch.row_watermark
            self._lowest = min(self._lowest, int(np.maximum(batch.time, ahead).min()))

    def _look_at_marks(self, spans: Sequence[Span]) -> None:
        for frame, start, stop in spans:
            if stop > start:
                return
            if frame.arrival < self._started:
                self._base = max(self._base, frame.after)
            elif frame.kind in _TIME_PASSES:
                self._begun = True
                self._lowest = min(self._lowest, frame.after)
                return

    def _may_change(self, batch: Batch) -> bool:
        """Return whether a row can still be earlier: not once the watermark has reached the time."""
        return not self._begun or batch.row_watermark is None or batch.row_watermark[0] < self._lowest

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        return {"base": self._base, "lowest": self._lowest, "begun": self._begun}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""
        self._base, self._lowest, self._begun = state["base"], state["lowest"], state["begun"]


def _lowest(batch: Batch) -> int:
    assert batch.time is not None
    assert batch.row_watermark is not None
    return int(np.maximum(batch.time, batch.row_watermark).min())
