"""Accumulators that count rows, values or distinct values."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.index import IntIndex
from mavstream_server.columns.pieces import Steps, finished, joined, pieces
from mavstream_server.operators.aggregates.accumulator import Accumulator, Fields, Slots

_CODE_BITS = 32
_CODES = (1 << _CODE_BITS) - 1


class Count(Accumulator):
    """`count(x)`; `count(*)` is the count of a column without nulls."""

    fields: ClassVar[Fields] = {"count": (np.int64, 0)}

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add one per row that is not null."""
        slots.add_counts(self.arrays["count"], column.valid)

    def merge(self, slots: Ints, other: Self) -> None:
        """Add the counts."""
        self.arrays["count"][slots] += other.arrays["count"][: other.size]

    def result(self) -> Column:
        """Return the counts."""
        return Column(self.arrays["count"][: self.size])


class CountDistinct(Accumulator):
    """`count(distinct x)` over value codes: counts, and the set of all (slot, code) pairs.

    A pair is packed into one integer. Results need the counts alone.
    """

    fields: ClassVar[Fields] = {"count": (np.int64, 0)}

    def __init__(self) -> None:
        super().__init__()
        self._pairs = IntIndex()

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add the pairs that are new; code 0 is null and does not count."""
        finished(self.updating(slots, column, ordinals))

    def updating(self, slots: Slots, column: Column, ordinals: Ints | None) -> Steps[None]:
        """Do the same in steps."""
        rows = np.flatnonzero(column.values)
        yield from self._add((slots.rows.take(rows) << _CODE_BITS) | column.values.take(rows))

    def merge(self, slots: Ints, other: Self) -> None:
        """Unite the sets."""
        finished(self.merging(slots, other))

    def merging(self, slots: Ints, other: Self) -> Steps[None]:
        """Do the same in steps."""
        for piece in pieces(other._pairs.count):
            pairs = other._pairs.keys[piece]
            yield from self._add((slots.take(pairs >> _CODE_BITS) << _CODE_BITS) | (pairs & _CODES))
            yield

    def _add(self, pairs: Ints) -> Steps[None]:
        known = self._pairs.count
        yield from self._pairs.encoding(pairs)
        new = self._pairs.keys[known:]
        if len(new):
            np.add.at(self.arrays["count"], new >> _CODE_BITS, 1)

    def result(self) -> Column:
        """Return the number of pairs of each slot."""
        return Column(self.arrays["count"][: self.size])

    def taking(self, slots: Ints) -> Steps[Self]:
        """Return a copy of the state of the given slots, with their pairs."""
        taken = yield from super().taking(slots)
        moved = np.full(self.size, -1, dtype=np.int64)
        moved[slots] = np.arange(len(slots))
        kept = []
        for piece in pieces(self._pairs.count):
            pairs = self._pairs.keys[piece]
            owners = moved.take(pairs >> _CODE_BITS)
            held = owners >= 0
            kept.append((owners[held] << _CODE_BITS) | (pairs[held] & _CODES))
            yield
        taken._pairs = yield from IntIndex.of((yield from joined(kept)))
        return taken

    def answering(self, slots: Ints) -> Steps[Self]:
        """Return a copy of the counts of the given slots."""
        return (yield from super().taking(slots))

    @property
    def nbytes(self) -> int:
        """Bytes of counts and pairs."""
        return super().nbytes + (self._pairs.nbytes if self._pairs.count else 0)

    def held_codes(self) -> Ints | None:
        """Return the codes of all pairs."""
        return self._pairs.keys & _CODES

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the codes in the pairs."""
        pairs = np.empty(self._pairs.count, dtype=np.int64)
        for piece in pieces(len(pairs)):
            some = self._pairs.keys[piece]
            pairs[piece] = (some & ~_CODES) | mapping.take(some & _CODES)
            yield
        self._pairs = yield from IntIndex.of(pairs)

    def save(self) -> dict[str, Any]:
        """Return the pairs; codes refer to the coder, which is saved separately."""
        return {"size": self.size, "pairs": self._pairs.keys}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the pairs from a snapshot."""
        self.grow(state["size"])
        finished(self._add(np.array(state["pairs"], dtype=np.int64)))
