"""Counts of stragglers: rows that came too late for some of their windows and in time for others."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mavstream_server.columns.column import Ints


class StragglerCounts:
    """How many stragglers have part in no answer yet, by the first and the last window that they are in."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[int, int]] = Counter()

    def add(self, firsts: Ints, lasts: Ints) -> None:
        """Count stragglers."""
        spans, counts = np.unique(np.column_stack((firsts, lasts)), axis=0, return_counts=True)
        for (first, last), count in zip(spans.tolist(), counts.tolist(), strict=True):
            self._rows[first, last] += count

    def answered(self, opened: int) -> None:
        """Windows before one were answered."""
        if self._rows:
            self._rows = Counter({span: rows for span, rows in self._rows.items() if span[0] >= opened})

    def skip(self, first: int) -> int:
        """Return how many are in windows before one alone, and forget them."""
        lost = {span: rows for span, rows in self._rows.items() if span[1] < first}
        self._rows -= Counter(lost)
        return sum(lost.values())

    def save(self) -> list[list[int]]:
        """Return the numbers for a snapshot."""
        return [[*span, rows] for span, rows in self._rows.items()]

    def load(self, state: list[list[int]]) -> None:
        """Take over the numbers of a snapshot."""
        self._rows = Counter({(first, last): rows for first, last, rows in state})
