"""Exact quantiles, the median among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from mavstream_server.columns.column import Array, Column, Ints
from mavstream_server.operators.aggregates.accumulator import Accumulator, Slots, valid_rows

_FEW = 4  # with fewer slots than one in so many, their values are looked up instead of filtered


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
        owners, values = other._gathered()
        if len(owners):
            self._add(slots.take(owners), values)

    def result(self) -> Column:
        """Return the median of each slot."""
        return self.at(0.5)

    def at(self, fraction: float) -> Column:
        """Return a quantile of each slot, interpolated linearly between two values; null without values."""
        owners, values = self._in_order()
        counts = np.bincount(owners, minlength=self.size)
        if not len(values):
            return Column(np.zeros(self.size), np.zeros(self.size, dtype=bool))
        place = np.maximum(counts - 1, 0) * fraction
        below = place.astype(np.int64)
        starts = np.cumsum(counts) - counts
        last = len(values) - 1
        low = values.take(np.minimum(starts + below, last))
        high = values.take(np.minimum(starts + np.ceil(place).astype(np.int64), last))
        seen = counts > 0
        return Column(_between(low, high, place - below), None if seen.all() else seen)

    def take(self, slots: Ints) -> Self:
        """Return the values of the given slots, renumbered."""
        taken = super().take(slots)
        if _FEW * len(slots) < self.size:
            owners, values = self._in_order()
            firsts = np.searchsorted(owners, slots)
            counts = np.searchsorted(owners, slots, side="right") - firsts
            rows = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            taken._owners, taken._values = [np.repeat(np.arange(len(slots)), counts)], [values.take(rows)]
            taken._sorted = True
            return taken
        owners, values = self._gathered()
        moved = np.full(max(self.size, 1), -1, dtype=np.int64)
        moved[slots] = np.arange(len(slots))
        owners = moved.take(owners)
        rows = np.flatnonzero(owners >= 0)
        taken._owners, taken._values, taken._sorted = [owners.take(rows)], [values.take(rows)], False
        return taken

    def parts(self, size: int) -> Iterator[Self]:
        """Yield copies of the state of each `size` consecutive slots; values are sorted by part once."""
        owners, values = self._gathered()
        numbers = owners // size
        order = numbers.astype(np.uint16 if self.size < size << 16 else np.int64).argsort(kind="stable")
        bounds = np.searchsorted(numbers, np.arange(-(-self.size // size) + 1), sorter=order).tolist()
        for number, start in enumerate(range(0, self.size, size)):
            rows = order[bounds[number] : bounds[number + 1]]
            part = super().take(np.arange(start, min(start + size, self.size)))
            part._owners, part._values = [owners.take(rows) - start], [values.take(rows)]
            part._sorted = False
            yield part

    @property
    def nbytes(self) -> int:
        """Bytes of the values and their slots."""
        return sum(array.nbytes for array in (*self._owners, *self._values))

    def save(self) -> dict[str, Any]:
        """Return the values."""
        owners, values = self._gathered()
        return {"size": self.size, "owners": owners, "values": values}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the values from a snapshot."""
        self.grow(state["size"])
        self._owners, self._values, self._sorted = [state["owners"]], [state["values"]], False

    def _add(self, owners: Ints, values: Array) -> None:
        self._owners.append(owners)
        self._values.append(values)
        self._sorted = False

    def _gathered(self) -> tuple[Ints, Array]:
        if len(self._owners) != 1:
            self._owners = [np.concatenate([np.empty(0, dtype=np.int64), *self._owners])]
            self._values = [np.concatenate([np.empty(0), *self._values])]
        return self._owners[0], self._values[0]

    def _in_order(self) -> tuple[Ints, Array]:
        """Return the values by slot and size, sorted once for all quantiles."""
        owners, values = self._gathered()
        if not self._sorted:
            order = np.lexsort((values, owners))
            self._owners, self._values = [owners.take(order)], [values.take(order)]
            self._sorted = True
        return self._owners[0], self._values[0]


def _between(low: Array, high: Array, share: Array) -> Array:
    """Return the values at a share of the way; they never overflow, and equal ends give the same value."""
    apart = (low < 0) & (high > 0)  # the distance may then be beyond the largest float
    distance = np.where(apart, 0.0, high) - np.where(apart, 0.0, low)
    values: Array = np.where(apart, low * (1 - share) + high * share, low + distance * share)
    return values
