"""Portions: rows of several feeds that fall due up to a point in time, laid out before they do.

Time is cut into slots, which are as long as rows may wait for company. Rows of a slot lie together, stream
after stream, so that its message is a slice. Nothing is taken from sources or arrivals by laying rows out:
a portion, or a stream's part of it, can be forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Arrivals, Times
from mavstream_feeder.sending.feeds import Feed
from mavstream_feeder.sending.lane import Lane

_NOWHERE: NDArray[np.intp] = np.empty(0, dtype=np.intp)


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
    """What leaves at a moment."""

    places: NDArray[np.intp]
    """Where its rows are in the portion."""
    counts: list[tuple[int, int]]
    """Members that have rows in it, and how many."""
    straight: bool
    """Whether the rows lie together as they are to be sent."""
    stop: int
    """Where those begin whose time has not come."""
    later: NDArray[np.intp]
    """Where those are that are put off."""


class Rows(NamedTuple):
    """Rows in the order of their slots, and in a slot member after member."""

    batch: pa.RecordBatch
    times: Times
    whose: NDArray[np.intp]
    ranks: NDArray[np.intp]
    """How many rows of its member are ahead of each, not counting those of earlier portions."""
    slots: NDArray[np.int16]


def laid_out(members: Sequence[Member], ends: Times) -> Generator[None, None, Portion]:
    """Return the portion of what falls due in slots that end at the given times; made in steps."""
    sizes = [int(each.times.searchsorted(ends[-1], "right")) for each in members]
    there = [(each, size) for each, size in zip(members, sizes, strict=True) if size]
    counts = [size for _, size in there]
    times = np.concatenate([each.times[:size] for each, size in there])
    whose = np.repeat(np.arange(len(there)), counts)
    ranks = np.arange(len(times)) - np.repeat(np.cumsum([0, *counts[:-1]]), counts)
    # Sorting small numbers takes no comparisons.
    slots = ends.searchsorted(times).astype(np.int16)
    order = np.argsort(slots, kind="stable")
    yield
    batch = pa.concat_batches([each.rows.slice(0, size) for each, size in there])
    yield
    rows = Rows(batch.take(order), times[order], whose[order], ranks[order], slots[order])
    return Portion([each for each, _ in there], rows, ends.tolist())


class Portion:
    """Rows of its members, in slots that end at the given times."""

    def __init__(self, members: Sequence[Member], rows: Rows, ends: list[float]) -> None:
        self.members = members
        self.until = ends[-1]
        self._ends = ends
        # As the lags count streams.
        self._streams = np.array([each.feed.numbers[each.lane.stream] for each in members])
        self._later: NDArray[np.intp] = _NOWHERE
        self._hold(rows)

    def next_due(self) -> float:
        """Return when the slot of the next row ends; without one, when the portion is over."""
        slots = self._all.slots
        return self._ends[slots[self._next]] if self._next < len(slots) else self.until

    def due(self, moment: float) -> Load | None:
        """Return what leaves by a moment, if anything does; it stays here until it is `sent`."""
        stop = max(self._bounds[bisect_right(self._ends, moment)], self._next)
        places = np.concatenate((self._later, np.arange(self._next, stop)))
        if not len(places):
            return None
        # When it comes late, there are several slots.
        slots = self._all.slots[places]
        straight = not len(self._later) and bool(slots[0] == slots[-1])
        return self._load(places, stop, _NOWHERE, straight=straight)

    def put_off(self, load: Load, members: Sequence[int]) -> Load:
        """Return a load without the rows of some members, which leave with a later one."""
        off = np.isin(self._all.whose[load.places], members)
        return self._load(load.places[~off], load.stop, load.places[off])

    def put_off_counts(self) -> list[int]:
        """Return how many rows of each member are put off."""
        counts: list[int] = np.bincount(self._all.whose[self._later], minlength=len(self.members)).tolist()
        return counts

    def carry_on(self, earlier: Portion) -> None:
        """Put what an earlier portion has put off ahead of the rows of the same feeds."""
        numbers = {each.feed.name: number for number, each in enumerate(self.members)}
        mine = np.array([numbers.get(each.feed.name, -1) for each in earlier.members])
        whose = mine[earlier._all.whose[earlier._later]]
        places, whose = earlier._later[whose >= 0], whose[whose >= 0]
        if not len(places):
            return
        # Ranks ahead of this portion's own.
        ranks = np.empty(len(places), dtype=np.intp)
        for member in np.unique(whose):
            its = np.flatnonzero(whose == member)
            ranks[its] = np.arange(-len(its), 0)
        rows = self._all
        self._hold(
            Rows(
                pa.concat_batches([earlier._all.batch.take(places), rows.batch]),
                np.concatenate((earlier._all.times[places], rows.times)),
                np.concatenate((whose, rows.whose)),
                np.concatenate((ranks, rows.ranks)),
                np.concatenate((np.zeros(len(places), dtype=np.int16), rows.slots)),
            ),
            later=len(places),
        )

    def batch(self, load: Load) -> pa.RecordBatch:
        """Return the rows of a load, those of a member together."""
        if load.straight:
            return self._all.batch.slice(int(load.places[0]), len(load.places))
        order = np.argsort(self._all.whose[load.places], kind="stable")
        return self._all.batch.take(load.places[order])

    def dues(self, load: Load) -> tuple[NDArray[np.intp], Times]:
        """Return the due times of a load, and whose each is."""
        return self._streams[self._all.whose[load.places]], self._all.times[load.places]

    def sent(self, load: Load) -> None:
        """Go on behind a load."""
        self._next, self._later = load.stop, load.later

    def forget(self, firsts: Sequence[float]) -> None:
        """Leave out the first rows of each member, counted as the ranks are."""
        batch, times, whose, ranks, slots = self._all
        left = np.concatenate((self._later, np.arange(self._next, len(whose))))
        kept = ranks[left] >= np.asarray(firsts)[whose[left]]
        later = int(np.count_nonzero(kept[: len(self._later)]))
        left = left[kept]
        self._hold(Rows(batch.take(left), times[left], whose[left], ranks[left], slots[left]), later)

    def _load(
        self, places: NDArray[np.intp], stop: int, later: NDArray[np.intp], *, straight: bool = False
    ) -> Load:
        counts = np.bincount(self._all.whose[places]).tolist()
        there = [(member, count) for member, count in enumerate(counts) if count]
        return Load(places, there, straight, stop, later)

    def _hold(self, rows: Rows, later: int = 0) -> None:
        """Have these rows, the first ones of which are put off."""
        self._all = rows
        self._next = later
        self._later = np.arange(later)
        # Where the rows of each slot begin.
        self._bounds = rows.slots.searchsorted(np.arange(len(self._ends) + 1)).tolist()
