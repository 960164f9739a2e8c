"""Sorted runs: rows ordered by key and time, in which partners are found by binary search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mavstream_server.columns.batch import Batch, concatenating
from mavstream_server.columns.column import Ints, Mask, both_valid
from mavstream_server.columns.pieces import Steps, finished, fits, joined, ordered, pieces, portions, taken

PAIRS_AT_ONCE = 1 << 15
_PACKED_BITS = 62


class SortedRun:
    """An immutable run of rows of one side of a join, sorted by the codes of their keys and by time."""

    __slots__ = ("_bits", "_packed", "_room", "codes", "earliest", "latest", "rows", "times")

    def __init__(self, rows: Batch, codes: Ints, bounds: tuple[int, int] | None = None) -> None:
        """Create a run from rows that are sorted already; `bounds` are their first and last time."""
        assert rows.time is not None
        self.rows = rows
        self.codes = codes
        self.times = rows.time
        self.earliest, self.latest = bounds or (int(self.times.min()), int(self.times.max()))
        self._packed: Ints | None = None
        self._bits = self._room = 0

    @classmethod
    def build(cls, rows: Batch, codes: Ints) -> SortedRun:
        """Create a run from rows in any order."""
        times = rows.time
        assert times is not None
        if np.count_nonzero(times[1:] < times[:-1]):
            order = np.lexsort((times, codes))
            return cls(rows.take(order), codes.take(order))
        order = _stable_order(codes, int(codes.max()))
        return cls(rows.take(order), codes.take(order), (int(times[0]), int(times[-1])))

    @classmethod
    def building(cls, rows: Batch, codes: Ints) -> Steps[SortedRun]:
        """Do the same in steps."""
        if fits(rows.size):
            return cls.build(rows, codes)
        assert rows.time is not None
        order = yield from ordered(codes, (yield from ordered(rows.time)))
        return cls((yield from rows.taking(order)), (yield from taken(codes, order)))

    @classmethod
    def merge(cls, older: SortedRun, newer: SortedRun) -> SortedRun:
        """Merge two runs into one."""
        return finished(cls.merging(older, newer))

    @classmethod
    def merging(cls, older: SortedRun, newer: SortedRun) -> Steps[SortedRun]:
        """Do the same in steps, each for a range of keys."""
        rows = yield from concatenating([older.rows, newer.rows])
        codes = yield from joined([older.codes, newer.codes])
        # If the second run begins where the first one ends, rows of a key stay in order of time.
        apart, times, orders = older.latest <= newer.earliest, rows.time, []
        assert times is not None
        first, second = 0, 0
        while first < older.size or second < newer.size:
            stop, end = older.size, newer.size
            piece = next(pieces(stop - first), slice(0, 0))
            if piece.stop < stop - first:
                above = older.codes[first + piece.stop]
                stop, end = (int(run.codes.searchsorted(above, "right")) for run in (older, newer))
            some = np.concatenate((np.arange(first, stop), np.arange(second, end) + older.size))
            given = codes.take(some)
            sort = _stable_order(given, int(given.max())) if apart else np.lexsort((times.take(some), given))
            orders.append(some.take(sort))
            first, second = stop, end
            yield
        order = yield from joined(orders)
        bounds = min(older.earliest, newer.earliest), max(older.latest, newer.latest)
        return cls((yield from rows.taking(order)), (yield from taken(codes, order)), bounds)

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.rows.size

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        packed = 0 if self._packed is None else self._packed.nbytes
        return self.rows.nbytes + self.codes.nbytes + packed

    def since(self, time: int) -> Steps[SortedRun | None]:
        """Return the run without the rows before a time (us), in steps, or None if none remain."""
        if self.latest < time:
            return None
        kept = np.flatnonzero(self.times >= time)
        return SortedRun((yield from self.rows.taking(kept)), (yield from taken(self.codes, kept)))

    def recode(self, mapping: Ints) -> Steps[SortedRun]:
        """Return the run with its codes replaced, in steps; the mapping must preserve their order."""
        codes = yield from taken(mapping, self.codes)
        return SortedRun(self.rows, codes, (self.earliest, self.latest))

    def partners(
        self, asking: SortedRun, reach: tuple[int, int] | None = None
    ) -> Iterator[tuple[Ints, Ints] | None]:
        """Yield pairs (row of the asking run, row of this one) with equal codes; None where a step ends.

        With a reach (earlier, later), in microseconds, only rows of this run that are at most that much
        earlier or later than the asking row. Pairs are yielded in chunks of bounded size, however many a key
        has.
        """
        if reach is None:
            for piece in pieces(asking.size):
                codes = asking.codes[piece]
                begin = self.codes.searchsorted(codes, "left")
                yield from _pairs(piece.start, begin, self.codes.searchsorted(codes, "right"))
                yield None
            return
        earlier, later = reach
        if self.latest < asking.earliest - earlier or self.earliest > asking.latest + later:
            return
        yield from _pairs(0, *self._near(asking, earlier, later))

    def _near(self, asking: SortedRun, earlier: int, later: int) -> tuple[Ints, Ints]:
        """Return the indexes at which the partners of each asking row begin and end.

        Code and time are packed into one integer per row, so that a single search covers both; the asking
        rows are sorted as well, which makes the search access memory sequentially.
        """
        room = self.latest - self.earliest + earlier + later + 1
        if room != self._room:
            self._pack(room)
        bits, base = self._bits, self.earliest - room
        if self._packed is None or bits + int(asking.codes[-1]).bit_length() > _PACKED_BITS:
            return self._near_by_bisection(asking, earlier, later)
        times = asking.times
        if asking.earliest - earlier < base or asking.latest + later >= base + 3 * room:
            times = np.minimum(np.maximum(times, self.earliest - later - 1), self.latest + earlier + 1)
        packed = asking.codes << bits
        packed += times - base
        search = self._packed.searchsorted
        return search(packed - earlier, "left"), search(packed + later, "right")

    def _pack(self, room: int) -> None:
        """Pack code and time, if both fit, with `room` for times before and after those of the run."""
        self._room = room
        self._bits = (3 * room).bit_length()
        self._packed = None
        if self._bits + int(self.codes[-1]).bit_length() <= _PACKED_BITS:
            self._packed = (self.codes << self._bits) + (self.times - (self.earliest - room))

    def _near_by_bisection(self, asking: SortedRun, earlier: int, later: int) -> tuple[Ints, Ints]:
        """Search by code and then by time, where the two do not fit into one integer."""
        begin = np.searchsorted(self.codes, asking.codes, "left")
        end = np.searchsorted(self.codes, asking.codes, "right")
        return (
            self._bisect(begin, end, asking.times - earlier, False),
            self._bisect(begin, end, asking.times + later, True),
        )

    def _bisect(self, begin: Ints, end: Ints, bounds: Ints, right: bool) -> Ints:
        """Search each range for its bound, all ranges at once."""
        low, high = begin.copy(), end.copy()
        last = self.size - 1
        while (open_ := low < high).any():
            middle = np.minimum((low + high) >> 1, last)
            times = self.times.take(middle)
            below = open_ & (times <= bounds if right else times < bounds)
            low = np.where(below, middle + 1, low)
            high = np.where(open_ & ~below, middle, high)
        return low


def _stable_order(codes: Ints, highest: int) -> Ints:
    """Return the order that sorts codes and leaves equal ones in their order."""
    if highest < 1 << 16:
        # For small integers numpy uses a radix sort, which is several times as fast.
        return codes.astype(np.uint16).argsort(kind="stable")
    return codes.argsort(kind="stable")


def with_keys(rows: Batch, keys: Sequence[str]) -> Steps[Batch]:
    """Return the rows without null keys, in steps: a null key equals nothing."""
    valid: Mask | None = None
    for key in keys:
        valid = both_valid(valid, rows.columns[key].valid)
    return rows if valid is None else (yield from rows.taking(np.flatnonzero(valid)))


def _pairs(start: int, begin: Ints, end: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of each row, numbered from `start`, with the indexes between its begin and its end."""
    counts = end - begin
    if np.count_nonzero(counts):
        for first, last in portions(counts, PAIRS_AT_ONCE):
            yield pairs_of(start + first, begin[first:last], counts[first:last])


def pairs_of(first: int, begin: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return pairs of each row, numbered from `first`, with as many as `counts` indexes from `begin` on."""
    ends = counts.cumsum()
    found = (begin + counts - ends).repeat(counts)
    found += np.arange(len(found))
    return np.arange(first, first + len(counts)).repeat(counts), found
