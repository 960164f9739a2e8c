"""Straggler counts: rows that were late for some of their windows and in time for others."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mavstream_server.columns.column import Ints


class StragglerCounts:
    """Counts stragglers that take part in no answer yet, by the first and last window that they are in."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[int, int]] = Counter()

    def add(self, firsts: Ints, lasts: Ints) -> None:
        """Count stragglers by their first and last windows."""
        spans, counts = np.unique(np.column_stack((firsts, lasts)), axis=0, return_counts=True)
        for (first, last), count in zip(spans.tolist(), counts.tolist(), strict=True):
            self._rows[first, last] += count

    def answered(self, opened: int) -> None:
        """Note that the windows before `opened` were answered."""
        if self._rows:
            self._rows = Counter({span: rows for span, rows in self._rows.items() if span[0] >= opened})

    def skip(self, first: int) -> int:
        """Remove the stragglers that are only in windows before `first`; returns their number."""
        lost = {span: rows for span, rows in self._rows.items() if span[1] < first}
        self._rows -= Counter(lost)
        return sum(lost.values())

    def save(self) -> list[list[int]]:
        """Return the counts for a snapshot."""
        return [[*span, rows] for span, rows in self._rows.items()]

    def load(self, state: list[list[int]]) -> None:
        """Restore the counts from a snapshot."""
        self._rows = Counter({(first, last): rows for first, last, rows in state})
