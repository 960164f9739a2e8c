"""Order by time: rows wait until nothing can come before them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mavstream_server.columns.batch import Batch, Mark, concatenate_batches, mark_only
from mavstream_server.columns.column import Ints


def drop_late(batch: Batch, counters: Counter[str]) -> Batch:
    """Return the rows that are not before the watermark just ahead of them, and count the others."""
    if batch.row_watermark is None or batch.row_watermark is batch.time:
        return batch
    assert batch.time is not None
    late = batch.time < batch.row_watermark
    if not late.any():
        return batch
    rows = np.flatnonzero(~late)
    counters["late"] += batch.size - len(rows)
    return batch.take(rows)


class TimeOrder:
    """Holds rows of several inputs and releases them by time, input and position.

    The position of a released row is its place in the merged order, so that order can be built on.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Batch, int, Ints]] = []
        self._released = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that wait."""
        return sum(batch.nbytes + minor.nbytes for batch, _, minor in self._waiting)

    @property
    def oldest(self) -> int | None:
        """Lowest arrival of the rows that wait, or None."""
        return min((int(batch.arrival.min()) for batch, _, _ in self._waiting), default=None)

    def add(self, batch: Batch, major: int, minor: Ints) -> None:
        """Keep rows; ties in time break by `major` (the input), the position and `minor`."""
        if batch.size:
            self._waiting.append((batch, major, minor))

    def release(self, mark: Mark) -> Batch:
        """Return the rows before the mark's watermark, in order, with the mark behind them."""
        ready: list[tuple[Batch, int, Ints]] = []
        waiting: list[tuple[Batch, int, Ints]] = []
        for batch, major, minor in self._waiting:
            assert batch.time is not None
            if batch.time.min() >= mark.watermark:
                waiting.append((batch, major, minor))
                continue
            early = batch.time < mark.watermark
            if early.all():
                ready.append((batch, major, minor))
                continue
            for part, rows in ((ready, np.flatnonzero(early)), (waiting, np.flatnonzero(~early))):
                part.append((batch.take(rows), major, minor.take(rows)))
        self._waiting = waiting
        return self._merged(ready, mark) if ready else mark_only(mark)

    def _merged(self, parts: list[tuple[Batch, int, Ints]], mark: Mark) -> Batch:
        rows = concatenate_batches([batch for batch, _, _ in parts])
        majors = np.repeat([major for _, major, _ in parts], [batch.size for batch, _, _ in parts])
        minors = np.concatenate([minor for _, _, minor in parts])
        assert rows.time is not None
        assert rows.position is not None
        merged = rows.take(np.lexsort((minors, rows.position, majors, rows.time)))
        first, self._released = self._released, self._released + merged.size
        return Batch(
            merged.columns,
            merged.size,
            merged.arrival,
            time=merged.time,
            position=np.arange(first, self._released),
            mark=mark,
        )

    def save(self) -> dict[str, Any]:
        """Return the rows that wait."""
        return {
            "released": self._released,
            "batches": [batch for batch, _, _ in self._waiting],
            "majors": [major for _, major, _ in self._waiting],
            "minors": [minor for _, _, minor in self._waiting],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over the rows that wait."""
        self._released = state["released"]
        self._waiting = list(zip(state["batches"], state["majors"], state["minors"], strict=True))
