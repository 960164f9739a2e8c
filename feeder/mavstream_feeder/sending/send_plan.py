"""Send plans: rows of several feeds that fall due up to a point in time, laid out before they do.

Time is cut into ticks, as long as rows may linger. The rows of a tick lie together, stream after stream, so
that its message is a slice. Planning takes nothing from sources or arrivals: a plan, or a stream's part of
it, can be thrown away.
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
from mavstream_protocol.producer import SendWindow

_NONE: NDArray[np.intp] = np.empty(0, dtype=np.intp)


class Member(NamedTuple):
    """A feed's part of a plan: its next rows and their due times."""

    feed: Feed
    window: SendWindow
    arrivals: Arrivals
    first: int
    """Rows of the source ahead of the first one."""
    times: Times
    rows: pa.RecordBatch


class DueRows(NamedTuple):
    """Rows of a plan that are sent at one moment."""

    indexes: NDArray[np.intp]
    """Their indexes in the plan."""
    counts: list[tuple[int, int]]
    """Members that have rows among them, and how many."""
    contiguous: bool
    """Whether the rows lie in the plan as they are to be sent."""
    stop: int
    """Index of the first row that is not due."""
    deferred: NDArray[np.intp]
    """Indexes of rows that are due and sent later."""


class _PlannedRows(NamedTuple):
    """Rows in the order of their ticks, and within a tick member by member."""

    batch: pa.RecordBatch
    times: Times
    members: NDArray[np.intp]
    """The member that each row belongs to."""
    ranks: NDArray[np.intp]
    """How many rows of its member are ahead of each, not counting those of earlier plans."""
    ticks: NDArray[np.int16]


def make_plan(members: Sequence[Member], ends: Times) -> Generator[None, None, SendPlan]:
    """Return the plan of what falls due in ticks that end at the given times; yields between steps."""
    sizes = [int(each.times.searchsorted(ends[-1], "right")) for each in members]
    present = [(each, size) for each, size in zip(members, sizes, strict=True) if size]
    counts = [size for _, size in present]
    times = np.concatenate([each.times[:size] for each, size in present])
    numbers = np.repeat(np.arange(len(present)), counts)
    ranks = np.arange(len(times)) - np.repeat(np.cumsum([0, *counts[:-1]]), counts)
    # Small integers are sorted without comparisons.
    ticks = ends.searchsorted(times).astype(np.int16)
    order = np.argsort(ticks, kind="stable")
    yield
    batch = pa.concat_batches([each.rows.slice(0, size) for each, size in present])
    yield
    rows = _PlannedRows(batch.take(order), times[order], numbers[order], ranks[order], ticks[order])
    return SendPlan([each for each, _ in present], rows, ends.tolist())


class SendPlan:
    """Rows of several members, in ticks that end at the given times."""

    def __init__(self, members: Sequence[Member], rows: _PlannedRows, ends: list[float]) -> None:
        self.members = members
        self.until = ends[-1]
        self._ends = ends
        # The members' streams, as the lags number them.
        self._streams = np.array([each.feed.lag_numbers[each.window.stream] for each in members])
        self._deferred: NDArray[np.intp] = _NONE
        self._set_rows(rows)

    def next_due(self) -> float:
        """Return when the tick of the next row ends; without one, when the plan ends."""
        ticks = self._rows.ticks
        return self._ends[ticks[self._next]] if self._next < len(ticks) else self.until

    def due(self, moment: float) -> DueRows | None:
        """Return what is due by a moment, None if nothing is; it stays in the plan until `sent`."""
        stop = max(self._bounds[bisect_right(self._ends, moment)], self._next)
        indexes = np.concatenate((self._deferred, np.arange(self._next, stop)))
        if not len(indexes):
            return None
        # When the feeder is late, there are several ticks.
        ticks = self._rows.ticks[indexes]
        contiguous = not len(self._deferred) and bool(ticks[0] == ticks[-1])
        return self._due_rows(indexes, stop, _NONE, contiguous=contiguous)

    def defer(self, due: DueRows, members: Sequence[int]) -> DueRows:
        """Return due rows without those of some members, which are sent later."""
        deferred = np.isin(self._rows.members[due.indexes], members)
        return self._due_rows(due.indexes[~deferred], due.stop, due.indexes[deferred])

    def deferred_counts(self) -> list[int]:
        """Return how many rows of each member are deferred."""
        members = self._rows.members[self._deferred]
        counts: list[int] = np.bincount(members, minlength=len(self.members)).tolist()
        return counts

    def continue_from(self, earlier: SendPlan) -> None:
        """Put the deferred rows of an earlier plan ahead of the rows of the same feeds."""
        numbers = {each.feed.name: number for number, each in enumerate(self.members)}
        renumbered = np.array([numbers.get(each.feed.name, -1) for each in earlier.members])
        members = renumbered[earlier._rows.members[earlier._deferred]]
        indexes, members = earlier._deferred[members >= 0], members[members >= 0]
        if not len(indexes):
            return
        # Their ranks are negative, ahead of this plan's own.
        ranks = np.empty(len(indexes), dtype=np.intp)
        for member in np.unique(members):
            own = np.flatnonzero(members == member)
            ranks[own] = np.arange(-len(own), 0)
        rows = self._rows
        self._set_rows(
            _PlannedRows(
                pa.concat_batches([earlier._rows.batch.take(indexes), rows.batch]),
                np.concatenate((earlier._rows.times[indexes], rows.times)),
                np.concatenate((members, rows.members)),
                np.concatenate((ranks, rows.ranks)),
                np.concatenate((np.zeros(len(indexes), dtype=np.int16), rows.ticks)),
            ),
            deferred=len(indexes),
        )

    def batch(self, due: DueRows) -> pa.RecordBatch:
        """Return due rows as a batch, those of a member together."""
        if due.contiguous:
            return self._rows.batch.slice(int(due.indexes[0]), len(due.indexes))
        order = np.argsort(self._rows.members[due.indexes], kind="stable")
        return self._rows.batch.take(due.indexes[order])

    def due_times(self, due: DueRows) -> tuple[NDArray[np.intp], Times]:
        """Return the streams of due rows, as the lags number them, and their due times."""
        return self._streams[self._rows.members[due.indexes]], self._rows.times[due.indexes]

    def sent(self, due: DueRows) -> None:
        """Go on behind due rows, which were sent."""
        self._next, self._deferred = due.stop, due.deferred

    def remove(self, firsts: Sequence[float]) -> None:
        """Remove the rows of each member whose rank is below `firsts`; infinity removes all."""
        batch, times, members, ranks, ticks = self._rows
        left = np.concatenate((self._deferred, np.arange(self._next, len(members))))
        kept = ranks[left] >= np.asarray(firsts)[members[left]]
        deferred = int(np.count_nonzero(kept[: len(self._deferred)]))
        left = left[kept]
        rows = _PlannedRows(batch.take(left), times[left], members[left], ranks[left], ticks[left])
        self._set_rows(rows, deferred)

    def _due_rows(
        self, indexes: NDArray[np.intp], stop: int, deferred: NDArray[np.intp], *, contiguous: bool = False
    ) -> DueRows:
        counts = np.bincount(self._rows.members[indexes]).tolist()
        present = [(member, count) for member, count in enumerate(counts) if count]
        return DueRows(indexes, present, contiguous, stop, deferred)

    def _set_rows(self, rows: _PlannedRows, deferred: int = 0) -> None:
        """Use these rows, the first `deferred` of which are deferred."""
        self._rows = rows
        self._next = deferred
        self._deferred = np.arange(deferred)
        # Index of the first row of each tick.
        self._bounds = rows.ticks.searchsorted(np.arange(len(self._ends) + 1)).tolist()
