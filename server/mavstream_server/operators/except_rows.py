"""Except: emits the left rows without an equal right row when a window closes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.columns.keys import KeyCoder
from mavstream_server.columns.pieces import joined, ordered, pieces
from mavstream_server.operators.joins.window_pairs import WindowPairs


class Except(WindowPairs):
    """Compares whole rows; duplicate left rows are all emitted, and null equals null."""

    kind = "except"

    def __init__(
        self,
        name: str,
        compared: Sequence[tuple[str, FieldType]],
        window: TimeWindow | RowWindow,
        once: bool = False,
    ) -> None:
        self._names = [column for column, _ in compared]
        self._types = [type_ for _, type_ in compared]
        super().__init__(name, (self._names, self._names), window, once)

    def answer(self, number: int, left: Batch, right: Batch | None) -> Iterator[Batch | None]:
        """Yield the left rows that are not on the right side."""
        latest = max(
            int(rows.time.max()) for rows in (left, right) if rows is not None and rows.time is not None
        )
        if right is not None:
            coder = KeyCoder(self._types)
            wanted = yield from coder.encoding([left.columns[name] for name in self._names], left.size)
            present = yield from coder.encoding([right.columns[name] for name in self._names], right.size)
            absent = np.ones(coder.count, dtype=bool)
            for piece in pieces(right.size):
                absent[present[piece]] = False
                yield None
            kept = []
            for piece in pieces(left.size):
                kept.append(np.flatnonzero(absent.take(wanted[piece])) + piece.start)
                yield None
            left = yield from left.taking((yield from joined(kept)))
        if not left.size:
            return
        if self.windows.overlapping:
            assert left.position is not None
            # Panes are in order of time, not of the stream.
            left = yield from left.taking((yield from ordered(left.position)))
        bounds = self.bounds(number)
        time = bounds["window_end"] - 1 if self.windows.by_time else latest
        for part in left.parts():
            columns = dict(part.columns)
            columns |= {name: Column(np.full(part.size, value)) for name, value in bounds.items()}
            yield Batch(columns, part.size, part.arrival, time=np.full(part.size, time))
