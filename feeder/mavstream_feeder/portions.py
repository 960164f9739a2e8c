"""Portions: rows of several feeds that fall due up to a point in time, laid out before they do.

Time is cut into slots, which are as long as rows may wait for company. Rows of a slot lie together, stream
after stream, so that its message is a slice. Nothing is taken from sources or arrivals by laying rows out:
a portion, or a stream's part of it, can be forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mavstream_feeder.arrivals import Arrivals, Times
from mavstream_feeder.feeds import Feed
from mavstream_feeder.lane import Lane


class Member(NamedTuple):
    """A feed's part of a portion: its next rows, and when they fall due."""

    feed: Feed
    lane: Lane
    arrivals: Arrivals
    first: int
    """Rows of the source ahead of the first one."""
    times: Times
    rows: pa.RecordBatch


class Load(NamedTuple):
    """What leaves at a moment: rows `begin` to `stop` of a portion."""

    begin: int
    stop: int
    counts: list[tuple[int, int]]
    """Members that have rows in it, and how many."""


class Portion:
    """Rows of its members, in slots that end at the given times."""

    def __init__(self, members: Sequence[Member], ends: Times) -> None:
        self.until = float(ends[-1])
        sizes = [int(each.times.searchsorted(self.until, "right")) for each in members]
        there = [(each, size) for each, size in zip(members, sizes, strict=True) if size]
        self.members = [each for each, _ in there]
        self._ends = ends.tolist()
        times = np.concatenate([each.times[:size] for each, size in there])
        counts = [size for _, size in there]
        whose = np.repeat(np.arange(len(there)), counts)
        # Sorting small numbers takes no comparisons.
        slots = ends.searchsorted(times).astype(np.int16)
        order = np.argsort(slots, kind="stable")
        self._rows = pa.concat_batches([each.rows.slice(0, size) for each, size in there]).take(order)
        self._times: Times = times[order]
        self._whose = whose[order]
        # How many rows of its member are ahead of each.
        self._ranks = order - np.repeat(np.cumsum([0, *counts[:-1]]), counts)[order]
        # As the lags count streams.
        self._streams = np.array([each.feed.numbers[each.lane.stream] for each in self.members])
        self._count_off(slots[order])

    def next_due(self) -> float:
        """Return when the slot of the next row ends; without one, when the portion is over."""
        return self._ends[self._slots[self._next]] if self._next < len(self._slots) else self.until

    def due(self, moment: float) -> Load | None:
        """Return what leaves by a moment, if anything does; it stays here until it is `sent`."""
        begin, stop = self._next, self._bounds[bisect_right(self._ends, moment)]
        if begin == stop:
            return None
        counts = np.bincount(self._whose[begin:stop]).tolist()
        return Load(begin, stop, [(member, count) for member, count in enumerate(counts) if count])

    def rows(self, load: Load) -> pa.RecordBatch:
        """Return the rows of a load, those of a member together."""
        rows = self._rows.slice(load.begin, load.stop - load.begin)
        if self._slots[load.begin] == self._slots[load.stop - 1]:
            return rows
        # It comes late, so that there are several slots.
        return rows.take(np.argsort(self._whose[load.begin : load.stop], kind="stable"))

    def dues(self, load: Load) -> tuple[NDArray[np.intp], Times]:
        """Return the due times of a load, and whose each is."""
        which = slice(load.begin, load.stop)
        return self._streams[self._whose[which]], self._times[which]

    def sent(self, load: Load) -> None:
        """Go on behind a load."""
        self._next = load.stop

    def forget(self, firsts: Sequence[float]) -> None:
        """Leave out the first rows of each member, counted from when the portion was laid out."""
        kept = np.flatnonzero(self._ranks >= np.asarray(firsts)[self._whose])
        kept = kept[kept >= self._next]
        self._rows = self._rows.take(kept)
        self._times, self._whose, self._ranks = self._times[kept], self._whose[kept], self._ranks[kept]
        self._count_off(self._slots[kept])

    def _count_off(self, slots: NDArray[np.int16]) -> None:
        self._slots = slots
        self._next = 0
        # Where the rows of each slot begin.
        self._bounds = slots.searchsorted(np.arange(len(self._ends) + 1)).tolist()
