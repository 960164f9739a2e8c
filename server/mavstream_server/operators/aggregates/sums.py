"""Accumulators based on sums: sums, averages and standard deviations."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from mavstream_server.columns.column import Array, Column, Ints
from mavstream_server.columns.pieces import Steps, finished, pieces
from mavstream_server.operators.aggregates.accumulator import Accumulator, Fields, Slots, valid_rows
from mavstream_server.operators.operator import QueryFailed

_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1


class IntTotal(Accumulator):
    """Exact totals of integers: in one 64-bit word while they are sure to fit, else in a high and a low word.

    `_bound` is an upper bound of the absolute values of all totals: while it fits into 63 bits, nothing can
    have overflowed.
    """

    fields: ClassVar[Fields] = {"total": (np.int64, 0), "high": (np.int64, 0), "count": (np.int64, 0)}

    def __init__(self) -> None:
        super().__init__()
        self._bound = 0
        self._wide = False

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add the values."""
        rows, values = valid_rows(slots, column)
        if not len(values):
            return
        slots.add_counts(self.arrays["count"], column.valid)
        self._reserve(max(-int(values.min()), int(values.max())) * len(values))
        if self._wide:
            np.add.at(self.arrays["high"], rows, values >> _LOW_BITS)
            values = values & _LOW
        np.add.at(self.arrays["total"], rows, values)

    def merge(self, slots: Ints, other: Self) -> None:
        """Add the totals."""
        finished(self.merging(slots, other))

    def merging(self, slots: Ints, other: Self) -> Steps[None]:
        """Do the same in steps."""
        self._reserve(other._bound)
        if other._wide:
            self._widen()
        for piece in pieces(other.size):
            to, total, high = slots[piece], other.arrays["total"][piece], other.arrays["high"][piece]
            if self._wide and not other._wide:
                total, high = total & _LOW, total >> _LOW_BITS
            self.arrays["total"][to] += total
            self.arrays["high"][to] += high
            self.arrays["count"][to] += other.arrays["count"][piece]
            yield

    def _reserve(self, change: int) -> None:
        """Prepare for totals to change by up to `change`: switches to two words if they may overflow."""
        if self._wide:
            return
        self._bound += change
        if self._bound >> 63:
            total = self.arrays["total"][: self.size]
            largest = max(-int(total.min()), int(total.max()), 0) if self.size else 0
            self._bound = largest + change
            if self._bound >> 63:
                self._widen()

    def _widen(self) -> None:
        if not self._wide:
            self._wide = True
            total = self.arrays["total"]
            self.arrays["high"] += total >> _LOW_BITS
            total &= _LOW

    def totals(self) -> Ints:
        """Return the totals; one that does not fit into 64 bits fails the query."""
        total = self.arrays["total"][: self.size]
        if not self._wide:
            return total
        high = self.arrays["high"][: self.size] + (total >> _LOW_BITS)
        if self.size and (high.min() < -(1 << 31) or high.max() >= 1 << 31):
            raise QueryFailed(
                "a sum of integers does not fit into 64 bits; sum a float instead, for example "
                "`sum(CAST(x AS float))`"
            )
        whole: Ints = (high << _LOW_BITS) | (total & _LOW)
        return whole

    def floats(self) -> Array:
        """Return the totals as floats, of any magnitude."""
        total = self.arrays["total"][: self.size]
        if not self._wide:
            return total.astype(np.float64)
        # With carries moved both words are exact as floats, so that only their sum is rounded.
        high = self.arrays["high"][: self.size] + (total >> _LOW_BITS)
        floats: Array = high * float(1 << _LOW_BITS) + (total & _LOW)
        return floats

    def save(self) -> dict[str, Any]:
        """Return the totals and whether they use two words."""
        return {**super().save(), "bound": str(self._bound), "wide": self._wide}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the totals from a snapshot."""
        super().load(state)
        self._bound, self._wide = int(state["bound"]), state["wide"]


class FloatTotal(Accumulator):
    """Totals of floats, folded in stream order."""

    fields: ClassVar[Fields] = {"total": (np.float64, 0.0), "count": (np.int64, 0)}

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add the values."""
        rows, values = valid_rows(slots, column)
        slots.add_counts(self.arrays["count"], column.valid)
        with np.errstate(over="ignore"):  # `totals` detects it
            np.add.at(self.arrays["total"], rows, values)

    def merge(self, slots: Ints, other: Self) -> None:
        """Add the totals."""
        with np.errstate(over="ignore", invalid="ignore"):
            self.arrays["total"][slots] += other.arrays["total"][: other.size]
        self.arrays["count"][slots] += other.arrays["count"][: other.size]

    def totals(self) -> Array:
        """Return the totals; an infinite one fails the query."""
        total = self.arrays["total"][: self.size]
        if not np.isfinite(total).all():
            raise QueryFailed("a sum of floats is beyond the largest float; scale the values down first")
        return total

    floats = totals


def where_counted(accumulator: Accumulator, values: Array, least: int = 1) -> Column:
    """Return values that are null where fewer than `least` rows were counted."""
    enough = accumulator.arrays["count"][: accumulator.size] >= least
    return Column(values, None if enough.all() else enough)


class IntSum(IntTotal):
    """`sum` of integers."""

    def result(self) -> Column:
        """Return the sums, null without rows."""
        return where_counted(self, self.totals())


class FloatSum(FloatTotal):
    """`sum` of floats."""

    def result(self) -> Column:
        """Return the sums, null without rows."""
        return where_counted(self, self.totals())


class IntAverage(IntTotal):
    """`avg` of integers."""

    def result(self) -> Column:
        """Return the averages, null without rows."""
        return where_counted(self, self.floats() / np.maximum(self.arrays["count"][: self.size], 1))


class FloatAverage(FloatTotal):
    """`avg` of floats."""

    def result(self) -> Column:
        """Return the averages, null without rows."""
        return where_counted(self, self.floats() / np.maximum(self.arrays["count"][: self.size], 1))


class Deviation(Accumulator):
    """`stddev` of a sample: sums distances from a slot's first value, which limits rounding errors."""

    fields: ClassVar[Fields] = {
        "count": (np.int64, 0),
        "pivot": (np.float64, 0.0),
        "sum": (np.float64, 0.0),
        "squares": (np.float64, 0.0),
    }

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add the distances and their squares."""
        rows, values = valid_rows(slots, column)
        if not len(values):
            return
        values = values.astype(np.float64)
        count, pivot = self.arrays["count"], self.arrays["pivot"]
        # Written in reverse, so that the first row of a slot prevails.
        new = np.flatnonzero(count.take(rows) == 0)[::-1]
        pivot[rows.take(new)] = values.take(new)
        slots.add_counts(count, column.valid)
        distances = values - pivot.take(rows)
        np.add.at(self.arrays["sum"], rows, distances)
        with np.errstate(over="ignore"):
            np.add.at(self.arrays["squares"], rows, distances * distances)

    def merge(self, slots: Ints, other: Self) -> None:
        """Add the distances of another state, relative to the pivots of this one."""
        size = other.size
        count, pivot, total, squares = (
            other.arrays[name][:size] for name in ("count", "pivot", "sum", "squares")
        )
        empty = np.flatnonzero(self.arrays["count"].take(slots) == 0)
        self.arrays["pivot"][slots.take(empty)] = pivot.take(empty)
        shift = np.where(count > 0, pivot - self.arrays["pivot"].take(slots), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            self.arrays["squares"][slots] += squares + 2 * shift * total + count * shift * shift
            self.arrays["sum"][slots] += total + count * shift
        self.arrays["count"][slots] += count

    def result(self) -> Column:
        """Return the deviations, null with fewer than two rows."""
        count = self.arrays["count"][: self.size]
        total, squares = self.arrays["sum"][: self.size], self.arrays["squares"][: self.size]
        if not np.isfinite(squares).all():
            raise QueryFailed("a stddev is beyond the largest float; scale the values down first")
        variance = (squares - total * total / np.maximum(count, 1)) / np.maximum(count - 1, 1)
        return where_counted(self, np.sqrt(np.maximum(variance, 0.0)), least=2)
