"""Accumulators of floats whose rows come in no defined order: their results are the same for every order."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from mavstream_server.columns.column import Array, Column, Ints
from mavstream_server.columns.pieces import Steps, finished, pieces
from mavstream_server.operators.aggregates.accumulator import Accumulator, Fields, Slots, valid_rows
from mavstream_server.operators.aggregates.exact_totals import ROWS_AT_ONCE, ExactTotals
from mavstream_server.operators.aggregates.sums import where_counted
from mavstream_server.operators.operator import QueryFailed

_SPLIT = 2.0**26


class _Exact(Accumulator):
    """Counts and exact totals; `total_names` says of what."""

    fields: ClassVar[Fields] = {"count": (np.int64, 0), "infinite": (np.bool_, False)}
    total_names: ClassVar[tuple[str, ...]] = ("total",)

    def __init__(self) -> None:
        super().__init__()
        self.totals = {name: ExactTotals() for name in self.total_names}

    def reserve(self, size: int) -> Steps[None]:
        """Provide space for `size` slots, in steps."""
        capacity = self._capacity
        yield from super().reserve(size)
        if self._capacity != capacity:
            for total in self.totals.values():
                yield from total.reserve(self.size, self._capacity)

    def grow(self, size: int) -> None:
        """Grow to `size` slots; new ones have totals of zero."""
        before = self.size
        super().grow(size)
        for total in self.totals.values():
            total.clear(before, size)

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add the values; slots with one that is not finite are marked."""
        rows, values = valid_rows(slots, column)
        slots.add_counts(self.arrays["count"], column.valid)
        values = values.astype(np.float64, copy=False)
        finite = np.isfinite(values)
        if not finite.all():
            self.arrays["infinite"][rows[~finite]] = True
            rows, values = rows[finite], values[finite]
        self.add(rows, values)

    def add(self, rows: Ints, values: Array) -> None:
        """Add finite values to the totals."""
        self.totals["total"].add(rows, values)

    def merge(self, slots: Ints, other: Self) -> None:
        """Add the totals and counts."""
        finished(self.merging(slots, other))

    def merging(self, slots: Ints, other: Self) -> Steps[None]:
        """Do the same in steps."""
        for piece in pieces(other.size):
            self.arrays["count"][slots[piece]] += other.arrays["count"][piece]
            self.arrays["infinite"][slots[piece]] |= other.arrays["infinite"][piece]
            yield
        for name, total in self.totals.items():
            yield from total.merging(slots, other.totals[name], other.size)

    def view(self, slots: slice) -> Self:
        """Return the state of consecutive slots."""
        viewed = super().view(slots)
        viewed.totals = {name: total.view(slots) for name, total in self.totals.items()}
        return viewed

    def taking(self, slots: Ints) -> Steps[Self]:
        """Return a copy of the state of the given slots, in that order."""
        taken = yield from super().taking(slots)
        taken.totals = {}
        for name, total in self.totals.items():
            taken.totals[name] = yield from total.taking(slots)
        return taken

    @property
    def nbytes(self) -> int:
        """Bytes of counts and totals."""
        return super().nbytes + sum(total.nbytes for total in self.totals.values())

    def save(self) -> dict[str, Any]:
        """Return counts and totals for a snapshot."""
        totals = {name: total.save(self.size) for name, total in self.totals.items()}
        return {**super().save(), "totals": totals}

    def load(self, state: dict[str, Any]) -> None:
        """Restore counts and totals from a snapshot."""
        super().load(state)
        for name, total in self.totals.items():
            total.load(state["totals"][name], self.size, self._capacity)

    def finite(self, values: Array, what: str) -> Array:
        """Return results; one that is not finite fails the query."""
        if not np.isfinite(values).all() or self.arrays["infinite"][: self.size].any():
            raise QueryFailed(f"a {what} is beyond the largest float; scale the values down first")
        return values

    def sums(self) -> Array:
        """Return the totals, each rounded once; an infinite one fails the query."""
        values, exponents = self.totals["total"].rounded(self.size)
        with np.errstate(over="ignore"):
            return self.finite(np.ldexp(values, exponents), "sum of floats")


class ExactSum(_Exact):
    """`sum` of floats in any order."""

    def result(self) -> Column:
        """Return the sums, null without rows."""
        return where_counted(self, self.sums())


class ExactAverage(_Exact):
    """`avg` of floats in any order: the sum, rounded once, divided by the count."""

    def result(self) -> Column:
        """Return the averages, null without rows."""
        return where_counted(self, self.sums() / np.maximum(self.arrays["count"][: self.size], 1))


class ExactDeviation(_Exact):
    """`stddev` of a sample in any order, of exact totals of the values and of their squares."""

    total_names = ("total", "squares")

    def add(self, rows: Ints, values: Array) -> None:
        """Add the values and their squares."""
        self.totals["total"].add(rows, values)
        for start in range(0, len(values), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            fractions, powers = np.frexp(values[some])
            powers *= 2
            square, rest = exact_product(fractions, fractions)
            self.totals["squares"].add(rows[some], square, powers)
            self.totals["squares"].add(rows[some], rest, powers)

    @staticmethod
    def _add_products(total: ExactTotals, rows: Ints, left: Array, right: Array, exponents: Ints) -> None:
        """Add exact products, each times two to the power of its exponent."""
        product, rest = exact_product(left, right)
        total.add(rows, product, exponents)
        total.add(rows, rest, exponents)

    def result(self) -> Column:
        """Return the deviations, null with fewer than two rows.

        The squares' distance from a mean m is Q - n m^2 - 2 m (S - n m), where Q and S are the exact totals:
        all of it is added up exactly, so that nothing is lost where large numbers cancel out.
        """
        size, every = self.size, np.arange(self.size)
        count = self.arrays["count"][:size]
        total, squares = (finished(self.totals[name].taking(every)) for name in self.total_names)
        counts = np.maximum(count, 1).astype(np.float64)
        # In units of a power of two near the largest value, no product is out of range.
        values, exponents = squares.rounded(size)
        units = (np.frexp(values)[1] + exponents) // 2
        values, exponents = total.rounded(size)
        mean = np.ldexp(values, exponents - units) / counts
        self._add_products(total, every, -mean, counts, units)
        step = self._left(total, size, units) / counts
        moved = mean + step
        self._add_products(total, every, mean, counts, units)
        mean = moved
        self._add_products(total, every, -mean, counts, units)
        off = self._left(total, size, units)
        square, rest = exact_product(mean, mean)
        for part in (square, rest):
            self._add_products(squares, every, -part, counts, 2 * units)
        self._add_products(squares, every, -2.0 * mean, off, 2 * units)
        squares.add(every, -off * off / counts, 2 * units)
        values, exponents = squares.rounded(size)
        odd = exponents & 1
        roots = np.sqrt(np.maximum(np.ldexp(values, odd), 0.0) / np.maximum(count - 1, 1))
        with np.errstate(over="ignore"):
            deviations = np.ldexp(roots, (exponents - odd) // 2)
        return where_counted(self, self.finite(deviations, "stddev"), least=2)

    @staticmethod
    def _left(total: ExactTotals, size: int, units: Ints) -> Array:
        values, exponents = total.rounded(size)
        left: Array = np.ldexp(values, exponents - units)
        return left


def exact_product(left: Array, right: Array) -> tuple[Array, Array]:
    """Return products and what was rounded off (Dekker, 1971); factors must be far from the limits."""
    product = left * right
    high, low = _halves(left)
    other_high, other_low = (high, low) if right is left else _halves(right)
    rest = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
    return product, rest


def _halves(values: Array) -> tuple[Array, Array]:
    """Return two floats of half as many bits that add up to the values."""
    scaled = values * (_SPLIT * 2.0 + 1.0)
    high = scaled - (scaled - values)
    return high, values - high
