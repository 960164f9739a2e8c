"""Order by time: buffers rows until no earlier row can follow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mavstream_server.columns.batch import Batch, Mark, concatenate_batches, mark_only
from mavstream_server.columns.column import Ints


def drop_late(batch: Batch, counters: Counter[str]) -> Batch:
    """Return the batch without late rows, those before the watermark ahead of them, and count these."""
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
    """Buffers rows of several inputs and releases them ordered by time, input and position.

    The position of a released row is its index in the merged order, so that further operators can rely on it.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Batch, int, Ints]] = []
        self._released = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffered rows."""
        return sum(batch.nbytes + minor.nbytes for batch, _, minor in self._waiting)

    @property
    def oldest(self) -> int | None:
        """Earliest arrival (UTC, ns) of the buffered rows, or None."""
        return min((int(batch.arrival.min()) for batch, _, _ in self._waiting), default=None)

    def add(self, batch: Batch, major: int, minor: Ints) -> None:
        """Buffer rows; ties in time are broken by `major` (the input), the position and `minor`."""
        if batch.size:
            self._waiting.append((batch, major, minor))

    def release(self, mark: Mark) -> Batch:
        """Return the rows before the mark's watermark, in order, followed by the mark."""
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
            for target, rows in ((ready, np.flatnonzero(early)), (waiting, np.flatnonzero(~early))):
                target.append((batch.take(rows), major, minor.take(rows)))
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
        """Return the buffered rows for a snapshot."""
        return {
            "released": self._released,
            "batches": [batch for batch, _, _ in self._waiting],
            "majors": [major for _, major, _ in self._waiting],
            "minors": [minor for _, _, minor in self._waiting],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the buffered rows from a snapshot."""
        self._released = state["released"]
        self._waiting = list(zip(state["batches"], state["majors"], state["minors"], strict=True))
