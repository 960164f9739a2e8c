"""First time: from when on windows count for a one-time query, as its sources find it in their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch
from mavstream_server.log.cursor import Span
from mavstream_server.log.format.layout import FrameKind

_TIME_PASSES = (FrameKind.CLOCK, FrameKind.WATERMARK)


class FirstTime:
    """The earliest time that a source has to do with, in microseconds.

    It is the earliest time of the rows that were read: a row that is behind its own watermark counts as if it
    had the time of that. Where rows were there before the start it is the latest time of these, and where
    time passes without rows, the time of the first mark. Only marks ahead of the start do not count.
    """

    def __init__(self, started: int | None) -> None:
        """`started` is when the query started (arrival time, us); marks that are older do not count."""
        self._started = BEGIN_OF_TIME if started is None else started * 1000
        self._base = BEGIN_OF_TIME  # how far time had come at the start
        self._lowest = END_OF_TIME
        self._begun = False

    @property
    def time(self) -> int:
        """The time as far as it is known; END_OF_TIME while nothing was read."""
        return max(self._lowest, self._base) if self._begun else END_OF_TIME

    def missed(self, latest: int) -> None:
        """Rows up to a time were there before the start; for streams with event time."""
        self._lowest = min(self._lowest, latest)

    def read(self, spans: Sequence[Span], batch: Batch) -> None:
        """Look at what was read; `batch` has all the rows of it."""
        if not self._begun:
            self._look_at_marks(spans)
        if batch.size and self._may_change(batch):
            assert batch.time is not None
            assert batch.row_watermark is not None
            self._begun = True
            lowest = batch.time[0] if batch.time is batch.row_watermark else _lowest(batch)
            self._lowest = min(self._lowest, int(lowest))

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
        """Tell if a row can be earlier: not once the watermark has come as far."""
        return not self._begun or batch.row_watermark is None or batch.row_watermark[0] < self._lowest

    def save(self) -> dict[str, Any]:
        """Return what is known, for a snapshot."""
        return {"base": self._base, "lowest": self._lowest, "begun": self._begun}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what a snapshot knows."""
        self._base, self._lowest, self._begun = state["base"], state["lowest"], state["begun"]


def _lowest(batch: Batch) -> int:
    assert batch.time is not None
    assert batch.row_watermark is not None
    return int(np.maximum(batch.time, batch.row_watermark).min())
