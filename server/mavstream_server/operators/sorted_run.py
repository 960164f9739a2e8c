"""Sorted runs: rows ordered by key and time, in which partners are found without looking at the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Ints, Mask, both_valid

_PAIRS_AT_ONCE = 1 << 16
# Up to this many rows per key, comparing the times of all of them is cheaper than a binary search.
_SCAN = 8


class SortedRun:
    """Rows of one side of a join, immutable, with the codes of their keys."""

    __slots__ = ("_starts", "codes", "earliest", "latest", "rows", "times")

    def __init__(self, rows: Batch, codes: Ints) -> None:
        """Take rows that are sorted by code and time already."""
        assert rows.time is not None
        self.rows = rows
        self.codes = codes
        self.times = rows.time
        self.earliest = int(self.times.min())
        self.latest = int(self.times.max())
        self._starts: Ints | None = None  # by code: where its rows begin; one more at the end

    @classmethod
    def build(cls, rows: Batch, codes: Ints) -> SortedRun:
        """Sort rows that are there in any order."""
        assert rows.time is not None
        in_order = bool((rows.time[1:] >= rows.time[:-1]).all())
        if not in_order:
            order = np.lexsort((rows.time, codes))
        elif codes.max() < 1 << 16:
            order = codes.astype(np.uint16).argsort(kind="stable")  # a radix sort: three times as fast
        else:
            order = codes.argsort(kind="stable")
        return cls(rows.take(order), codes.take(order))

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.size

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.rows.nbytes + self.codes.nbytes

    def since(self, time: int) -> SortedRun | None:
        """Return the run without the rows before a time, or None if nothing is left."""
        if self.latest < time:
            return None
        kept = np.flatnonzero(self.times >= time)
        return SortedRun(self.rows.take(kept), self.codes.take(kept))

    def recode(self, mapping: Ints) -> SortedRun:
        """Return the run under other codes, which must keep their order."""
        return SortedRun(self.rows, mapping.take(self.codes))

    def partners(
        self, codes: Ints, low: Ints | None = None, high: Ints | None = None
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs (row asked for, row of this run) with equal codes and low <= time <= high.

        Pairs come in portions of bounded size, however many a key has.
        """
        begin, end = self._ranges(codes)
        longest = int((end - begin).max()) if len(codes) else 0
        if not longest:
            return
        searched = low is not None and high is not None and longest > _SCAN
        if searched:
            assert low is not None
            assert high is not None
            begin, end = self._bisect(begin, end, low, False), self._bisect(begin, end, high, True)
        counts = end - begin
        for first, last in _portions(counts):
            part = counts[first:last]
            total = int(part.sum())
            if not total:
                continue
            asked = np.repeat(np.arange(first, last), part)
            offsets = begin[first:last] - (np.cumsum(part) - part)
            found = np.arange(total) + np.repeat(offsets, part)
            if low is not None and high is not None and not searched:
                times = self.times.take(found)
                near = np.flatnonzero((times >= low.take(asked)) & (times <= high.take(asked)))
                asked, found = asked.take(near), found.take(near)
            if len(asked):
                yield asked, found

    def _ranges(self, codes: Ints) -> tuple[Ints, Ints]:
        """Return where the rows of each code begin and end."""
        top = int(self.codes[-1]) + 1
        if top > 4 * self.size + 1024:
            return np.searchsorted(self.codes, codes, "left"), np.searchsorted(self.codes, codes, "right")
        if self._starts is None:
            counts = np.bincount(self.codes, minlength=top + 1)
            self._starts = np.concatenate([[0], np.cumsum(counts)])
        known = np.minimum(codes, top)  # codes beyond the last one have no rows
        return self._starts.take(known), self._starts.take(known + 1)

    def _bisect(self, begin: Ints, end: Ints, bounds: Ints, right: bool) -> Ints:
        """Search each range for its bound, all ranges in step."""
        low, high = begin.copy(), end.copy()
        last = self.size - 1
        while (open_ := low < high).any():
            middle = np.minimum((low + high) >> 1, last)
            times = self.times.take(middle)
            below = open_ & (times <= bounds if right else times < bounds)
            low = np.where(below, middle + 1, low)
            high = np.where(open_ & ~below, middle, high)
        return low


def with_keys(rows: Batch, keys: Sequence[str]) -> Batch:
    """Return the rows whose keys are all there: a null key equals nothing."""
    valid: Mask | None = None
    for key in keys:
        valid = both_valid(valid, rows.columns[key].valid)
    return rows if valid is None else rows.take(np.flatnonzero(valid))


def _portions(counts: Ints) -> Iterator[tuple[int, int]]:
    """Cut rows so that each portion has a bounded number of pairs, or a single row."""
    if int(counts.sum()) <= _PAIRS_AT_ONCE:
        yield 0, len(counts)
        return
    totals = np.cumsum(counts)
    first = 0
    while first < len(counts):
        done = int(totals[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(totals, done + _PAIRS_AT_ONCE, "right")))
        yield first, last
        first = last
