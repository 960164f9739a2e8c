"""Panes of rows: which pane each row of a batch falls into, with bounds."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.column import Ints


class Panes:
    """The pane of each row. All are from `low` to `high`, which need not occur.

    `counts` are the numbers of rows from `low` to `high` if the rows are in the order of their panes, else
    None.
    """

    __slots__ = ("counts", "high", "low", "numbers")

    def __init__(self, numbers: Ints, low: int, high: int, counts: Ints | None = None) -> None:
        self.numbers = numbers
        self.low = low
        self.high = high
        self.counts = counts

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, numbers: Ints) -> Panes:
        """Return the panes of rows in any order."""
        return cls(numbers, int(numbers.min()), int(numbers.max())) if len(numbers) else cls(numbers, 0, 0)

    @classmethod
    def one(cls, pane: int, size: int) -> Panes:
        """Return the panes of `size` rows that all are in one pane."""
        numbers: Ints = np.empty(size, dtype=np.int64)
        numbers.fill(pane)
        return cls(numbers, pane, pane)

    @classmethod
    def between(cls, low: int, bounds: Ints, size: int) -> Panes:
        """Return the panes of `size` rows that are in order.

        `bounds` are the indexes of the first rows of the panes after `low`.
        """
        high = low + len(bounds)
        edges = np.array([0, *bounds.tolist(), size], dtype=np.int64)
        counts = edges[1:] - edges[:-1]
        return cls(np.arange(low, high + 1).repeat(counts), low, high, counts)

    def take(self, rows: Ints) -> Panes:
        """Return the panes of the given rows."""
        return Panes(self.numbers.take(rows), self.low, self.high)
