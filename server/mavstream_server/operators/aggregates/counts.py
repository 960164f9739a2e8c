"""Accumulators that count rows, values or distinct values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np

from mavstream_server.columns.column import Column, Ints
from mavstream_server.operators.aggregates.accumulator import Accumulator, Fields, Slots

_CODE_BITS = 32


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
    """`count(distinct x)` over value codes: a set of (slot, code) pairs, packed into integers.

    New pairs are appended and deduplicated when their number has doubled, so that the cost of sorting is
    amortized over the rows; a pair takes eight bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pairs: Ints = np.empty(0, dtype=np.int64)  # distinct, sorted
        self._new: list[Ints] = []
        self._new_count = 0

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Add the pairs; code 0 is null and does not count."""
        rows = np.flatnonzero(column.values)
        self._add((slots.rows.take(rows) << _CODE_BITS) | column.values.take(rows))

    def merge(self, slots: Ints, other: Self) -> None:
        """Unite the sets."""
        other._deduplicate()
        owners, codes = other._pairs >> _CODE_BITS, other._pairs & ((1 << _CODE_BITS) - 1)
        self._add((slots.take(owners) << _CODE_BITS) | codes)

    def result(self) -> Column:
        """Return the number of pairs of each slot."""
        self._deduplicate()
        return Column(np.bincount(self._pairs >> _CODE_BITS, minlength=self.size).astype(np.int64))

    def take(self, slots: Ints) -> Self:
        """Return the pairs of the given slots, renumbered."""
        self._deduplicate()
        taken = super().take(slots)
        moved = np.full(self.size, -1, dtype=np.int64)
        moved[slots] = np.arange(len(slots))
        owners = moved.take(self._pairs >> _CODE_BITS) if len(self._pairs) else self._pairs
        kept = owners >= 0
        codes = self._pairs[kept] & ((1 << _CODE_BITS) - 1)
        taken._pairs = np.sort((owners[kept] << _CODE_BITS) | codes)
        taken._new, taken._new_count = [], 0
        return taken

    def parts(self, size: int) -> Iterator[Self]:
        """Yield copies of each `size` consecutive slots, whose pairs lie side by side."""
        self._deduplicate()
        firsts = np.arange(0, self.size + size, size)
        bounds = np.searchsorted(self._pairs, firsts << _CODE_BITS).tolist()
        for number, first in enumerate(firsts[:-1].tolist()):
            part = super().take(np.arange(first, min(first + size, self.size)))
            part._pairs = self._pairs[bounds[number] : bounds[number + 1]] - (first << _CODE_BITS)
            part._new, part._new_count = [], 0
            yield part

    @property
    def nbytes(self) -> int:
        """Bytes of the pairs."""
        return self._pairs.nbytes + 8 * self._new_count

    def held_codes(self) -> Ints | None:
        """Return the codes of all pairs."""
        self._deduplicate()
        return self._pairs & ((1 << _CODE_BITS) - 1)

    def recode(self, mapping: Ints) -> None:
        """Replace the codes in the pairs."""
        self._deduplicate()
        owners, codes = self._pairs >> _CODE_BITS, self._pairs & ((1 << _CODE_BITS) - 1)
        self._pairs = np.sort((owners << _CODE_BITS) | mapping.take(codes))

    def save(self) -> dict[str, Any]:
        """Return the pairs; codes refer to the coder, which is saved separately."""
        self._deduplicate()
        return {"size": self.size, "pairs": self._pairs}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the pairs from a snapshot."""
        self.grow(state["size"])
        self._pairs = np.array(state["pairs"], dtype=np.int64)

    def _add(self, pairs: Ints) -> None:
        self._new.append(pairs)
        self._new_count += len(pairs)
        if self._new_count > max(4096, len(self._pairs)):
            self._deduplicate()

    def _deduplicate(self) -> None:
        if self._new:
            new = np.sort(np.concatenate(self._new))
            pairs = np.concatenate([self._pairs, new])
            pairs.sort(kind="stable")  # which merges two sorted runs in linear time
            self._pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])] if len(pairs) else pairs
            self._new, self._new_count = [], 0
