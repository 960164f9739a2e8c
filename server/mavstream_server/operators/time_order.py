"""Order by time: buffers rows until no earlier row can follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from mavstream_server.columns.batch import Batch, Mark, concatenating, mark_only
from mavstream_server.columns.column import Ints
from mavstream_server.columns.pieces import joined, ordered, pieces


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
        self._ready: list[tuple[Batch, int, Ints]] = []  # those that are being released
        self._released = 0

    @property
    def _held(self) -> list[tuple[Batch, int, Ints]]:
        return self._waiting + self._ready

    @property
    def nbytes(self) -> int:
        """Bytes of the buffered rows."""
        return sum(batch.nbytes + minor.nbytes for batch, _, minor in self._held)

    @property
    def oldest(self) -> int | None:
        """Earliest arrival (UTC, ns) of the buffered rows, or None."""
        return min((int(batch.arrival.min()) for batch, _, _ in self._held), default=None)

    def add(self, batch: Batch, major: int, minor: Ints) -> None:
        """Buffer rows; ties in time are broken by `major` (the input), the position and `minor`."""
        if batch.size:
            self._waiting.append((batch, major, minor))

    def releasing(self, mark: Mark) -> Iterator[Batch | None]:
        """Yield the rows before the mark's watermark, in order, followed by the mark.

        Yields None where a step ends between two batches.
        """
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
        self._waiting, self._ready = waiting, ready
        if ready:
            yield from self._merged(ready, mark)
            self._ready = []
        else:
            yield mark_only(mark)

    def _merged(self, parts: list[tuple[Batch, int, Ints]], mark: Mark) -> Iterator[Batch | None]:
        rows = yield from concatenating([batch.with_columns(batch.columns, None) for batch, _, _ in parts])
        majors = np.repeat([major for _, major, _ in parts], [batch.size for batch, _, _ in parts])
        minors = yield from joined([minor for _, _, minor in parts])
        assert rows.time is not None
        assert rows.position is not None
        order: Ints | None = None
        for values in (minors, rows.position, majors, rows.time):
            order = yield from ordered(values, order)
        assert order is not None
        for piece in pieces(rows.size):
            some = rows.take(order[piece])
            first, self._released = self._released, self._released + some.size
            yield Batch(
                some.columns,
                some.size,
                some.arrival,
                time=some.time,
                position=np.arange(first, self._released),
                mark=mark if piece.stop == rows.size else None,
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
