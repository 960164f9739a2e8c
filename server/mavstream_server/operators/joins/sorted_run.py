"""Sorted runs: rows ordered by key and time, in which partners are found without looking at the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mavstream_server.columns.batch import Batch, concatenate_batches
from mavstream_server.columns.column import Ints, Mask, both_valid

_PAIRS_AT_ONCE = 1 << 16
_PLACE_BITS = 62


class SortedRun:
    """Rows of one side of a join, immutable, sorted by the codes of their keys and by time."""

    __slots__ = ("_bits", "_places", "codes", "earliest", "latest", "rows", "times")

    def __init__(self, rows: Batch, codes: Ints) -> None:
        """Take rows that are sorted already."""
        assert rows.time is not None
        self.rows = rows
        self.codes = codes
        self.times = rows.time
        self.earliest = int(self.times.min())
        self.latest = int(self.times.max())
        self._places: Ints | None = None
        self._bits = 0

    @classmethod
    def build(cls, rows: Batch, codes: Ints) -> SortedRun:
        """Sort rows that are there in any order."""
        assert rows.time is not None
        in_order = bool((rows.time[1:] >= rows.time[:-1]).all())
        order = _stable_order(codes) if in_order else np.lexsort((rows.time, codes))
        return cls(rows.take(order), codes.take(order))

    @classmethod
    def merge(cls, older: SortedRun, newer: SortedRun) -> SortedRun:
        """Make one run of two."""
        rows = concatenate_batches([older.rows, newer.rows])
        codes = np.concatenate([older.codes, newer.codes])
        if older.latest > newer.earliest:
            return cls.build(rows, codes)
        order = _stable_order(codes)  # times rise from the first run to the second, inside a key too
        return cls(rows.take(order), codes.take(order))

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.size

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        places = 0 if self._places is None else self._places.nbytes
        return self.rows.nbytes + self.codes.nbytes + places

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
        self, asking: SortedRun, reach: tuple[int, int] | None = None
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs (row of the asking run, row of this one) with equal codes.

        With a reach (earlier, later), only rows of this run that are at most so much earlier or later
        than the asking row. Pairs come in portions of bounded size, however many a key has.
        """
        if reach is None:
            begin = np.searchsorted(self.codes, asking.codes, "left")
            end = np.searchsorted(self.codes, asking.codes, "right")
        else:
            earlier, later = reach
            if self.latest < asking.earliest - earlier or self.earliest > asking.latest + later:
                return
            begin, end = self._near(asking, earlier, later)
        counts = end - begin
        for first, last in portions(counts):
            part = counts[first:last]
            total = int(part.sum())
            if total:
                asked = np.repeat(np.arange(first, last), part)
                offsets = begin[first:last] - (np.cumsum(part) - part)
                yield asked, np.arange(total) + np.repeat(offsets, part)

    def _near(self, asking: SortedRun, earlier: int, later: int) -> tuple[Ints, Ints]:
        """Return where the partners of each asking row begin and end.

        A row's place is its code and its time in one integer, so that one search finds both; the asking
        rows are sorted too, which makes the search run along instead of jumping about.
        """
        span = self.latest - self.earliest
        if self._places is None:
            self._bits = (span + 2).bit_length()
            if self._bits + int(self.codes[-1]).bit_length() <= _PLACE_BITS:
                self._places = (self.codes << self._bits) + (self.times - self.earliest)
        if self._places is None or self._bits + int(asking.codes[-1]).bit_length() > _PLACE_BITS:
            return self._near_by_bisection(asking, earlier, later)
        offsets = asking.times - self.earliest
        codes = asking.codes << self._bits
        low = np.clip(offsets - earlier, 0, span + 1)
        high = np.clip(offsets + later, -1, span)
        places = self._places
        return np.searchsorted(places, codes + low, "left"), np.searchsorted(places, codes + high, "right")

    def _near_by_bisection(self, asking: SortedRun, earlier: int, later: int) -> tuple[Ints, Ints]:
        """Search by code and then by time, where the two do not fit into one integer."""
        begin = np.searchsorted(self.codes, asking.codes, "left")
        end = np.searchsorted(self.codes, asking.codes, "right")
        return (
            self._bisect(begin, end, asking.times - earlier, False),
            self._bisect(begin, end, asking.times + later, True),
        )

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


def _stable_order(codes: Ints) -> Ints:
    """Sort codes, equal ones in the order in which they stand."""
    if codes.max() < 1 << 16:
        return codes.astype(np.uint16).argsort(kind="stable")  # a radix sort: several times as fast
    return codes.argsort(kind="stable")


def with_keys(rows: Batch, keys: Sequence[str]) -> Batch:
    """Return the rows whose keys are all there: a null key equals nothing."""
    valid: Mask | None = None
    for key in keys:
        valid = both_valid(valid, rows.columns[key].valid)
    return rows if valid is None else rows.take(np.flatnonzero(valid))


def portions(counts: Ints) -> Iterator[tuple[int, int]]:
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
