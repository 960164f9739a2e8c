"""Exact quantiles, the median among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from mavstream_server.columns.column import Array, Column, Ints
from mavstream_server.columns.pieces import (
    Steps,
    finished,
    fits,
    joined,
    ordered,
    ordered_floats,
    pieces,
    taken,
)
from mavstream_server.operators.aggregates.accumulator import Accumulator, Slots, valid_rows


class Quantiles(Accumulator):
    """Stores every value with its slot, since no summary gives an exact quantile.

    All quantiles of the same argument share one such state.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owners: list[Ints] = []
        self._values: list[Array] = []
        self._sorted = False

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Store the values."""
        owners, values = valid_rows(slots, column)
        self._add(owners, values.astype(np.float64))

    def merge(self, slots: Ints, other: Self) -> None:
        """Add the values of another state."""
        finished(self.merging(slots, other))

    def merging(self, slots: Ints, other: Self) -> Steps[None]:
        """Do the same in steps."""
        for owners, values in zip(other._owners, other._values, strict=True):
            self._add((yield from taken(slots, owners)), values)
            yield

    def result(self) -> Column:
        """Return the median of each slot."""
        return self.at(0.5)

    def at(self, fraction: float) -> Column:
        """Return a quantile of each slot, interpolated linearly between two values; null without values."""
        finished(self._sorting())
        if not len(values := self._values[0]):
            return Column(np.zeros(self.size), np.zeros(self.size, dtype=bool))
        starts = np.searchsorted(self._owners[0], np.arange(self.size))
        counts = np.diff(starts, append=len(values))
        place = np.maximum(counts - 1, 0) * fraction
        below = place.astype(np.int64)
        last = len(values) - 1
        low = values.take(np.minimum(starts + below, last))
        high = values.take(np.minimum(starts + np.ceil(place).astype(np.int64), last))
        seen = counts > 0
        return Column(_between(low, high, place - below), None if seen.all() else seen)

    def taking(self, slots: Ints) -> Steps[Self]:
        """Return the values of the given slots, renumbered."""
        taken = yield from super().taking(slots)
        moved = np.full(max(self.size, 1), -1, dtype=np.int64)
        moved[slots] = np.arange(len(slots))
        taken._owners, taken._values, taken._sorted = [], [], False
        for owners, values in zip(self._owners, self._values, strict=True):
            for piece in pieces(len(owners)):
                some = moved.take(owners[piece])
                rows = np.flatnonzero(some >= 0)
                taken._add(some.take(rows), values[piece].take(rows))
                yield
        return taken

    def dividing(self, size: int) -> Steps[Iterator[Self]]:
        """Sort all values; returns the state of each `size` consecutive slots."""
        yield from self._sorting()
        return self._divided(size)

    def _divided(self, size: int) -> Iterator[Self]:
        owners, values = self._owners[0], self._values[0]
        for start in range(0, self.size, size):
            part = self.view(slice(start, min(start + size, self.size)))
            first, stop = np.searchsorted(owners, [start, start + size]).tolist()
            part._owners, part._values = [owners[first:stop] - start], [values[first:stop]]
            yield part

    @property
    def nbytes(self) -> int:
        """Bytes of the values and their slots."""
        return sum(array.nbytes for array in (*self._owners, *self._values))

    def save(self) -> dict[str, Any]:
        """Return the values."""
        owners, values = finished(joined(self._owners)), finished(joined(self._values, np.float64))
        return {"size": self.size, "owners": owners, "values": values}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the values from a snapshot."""
        self.grow(state["size"])
        self._owners, self._values, self._sorted = [state["owners"]], [state["values"]], False

    def _add(self, owners: Ints, values: Array) -> None:
        self._owners.append(owners)
        self._values.append(values)
        self._sorted = False

    def _sorting(self) -> Steps[None]:
        """Sort the values by slot and size, once for all quantiles, in steps."""
        if self._sorted:
            return
        owners = yield from joined(self._owners)
        values = yield from joined(self._values, np.float64)
        order = yield from ordered(owners)
        owners = yield from taken(owners, order)
        values = yield from taken(values, order)
        start = 0
        while start < len(owners):
            stop = _end_of_groups(owners, start)
            if not fits(stop - start):
                order = yield from ordered_floats(values[start:stop])
                values[start:stop] = yield from taken(values[start:stop], order)
            else:
                order = np.lexsort((values[start:stop], owners[start:stop]))
                values[start:stop] = values[start:stop].take(order)
            start = stop
            yield
        self._owners, self._values, self._sorted = [owners], [values], True


def _end_of_groups(owners: Ints, start: int) -> int:
    """Return where the values of so many groups end as can be sorted at once, of one group at least."""
    stop: int = start + next(pieces(len(owners) - start)).stop
    if stop == len(owners):
        return stop
    begin = int(np.searchsorted(owners, owners[stop]))
    return begin if begin > start else int(np.searchsorted(owners, owners[stop], side="right"))


def _between(low: Array, high: Array, share: Array) -> Array:
    """Return the values at a share of the way; they never overflow, and equal ends give the same value."""
    apart = (low < 0) & (high > 0)  # the distance may then be beyond the largest float
    distance = np.where(apart, 0.0, high) - np.where(apart, 0.0, low)
    values: Array = np.where(apart, low * (1 - share) + high * share, low + distance * share)
    return values
