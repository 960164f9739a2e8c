"""Accumulators: the running state of one aggregate call, for many groups at once.

A slot is the index of a group in the state. Rows are folded into slots in stream order, one array operation
per batch, so that the result does not depend on how rows are divided into batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np

from mavstream_server.columns.column import Array, Column, Ints, Mask

_SLOTS_PER_ROW = 4

Fields = dict[str, tuple[Any, Any]]


class Slots:
    """The slot of each row of a batch, of `size` slots."""

    __slots__ = ("_counts", "rows", "size")

    def __init__(self, rows: Ints, size: int) -> None:
        self.rows = rows
        self.size = size
        self._counts: Ints | None = None

    @property
    def counts(self) -> Ints | None:
        """The number of rows of each slot, counted once for all accumulators; None if few slots have any."""
        if self._counts is None and self.size <= _SLOTS_PER_ROW * len(self.rows):
            self._counts = np.bincount(self.rows, minlength=self.size)
        return self._counts

    def add_counts(self, totals: Ints, valid: Mask | None) -> None:
        """Add the number of rows of each slot to the totals, without those that are not valid."""
        if valid is not None:
            np.add.at(totals, self.rows[valid], 1)
        elif (counts := self.counts) is not None:
            totals[: self.size] += counts
        else:
            np.add.at(totals, self.rows, 1)


class Accumulator(ABC):
    """State as parallel arrays over the slots: `fields` names them, each with its type and neutral value."""

    fields: ClassVar[Fields] = {}

    def __init__(self) -> None:
        self.size = 0
        self._capacity = 16
        self.arrays: dict[str, Array] = {
            name: np.full(self._capacity, neutral, dtype) for name, (dtype, neutral) in self.fields.items()
        }

    def grow(self, size: int) -> None:
        """Grow to `size` slots; new ones have the neutral values."""
        if size > self._capacity:
            self._capacity = max(size, 2 * self._capacity)
            for name, (dtype, neutral) in self.fields.items():
                grown = np.full(self._capacity, neutral, dtype)
                grown[: self.size] = self.arrays[name][: self.size]
                self.arrays[name] = grown
        self.size = size

    @abstractmethod
    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Fold rows into their slots; `ordinals` are the numbers of the rows where the call needs them."""

    @abstractmethod
    def merge(self, slots: Ints, other: Self) -> None:
        """Fold slot i of another state into `slots[i]`; the slots are distinct."""

    @abstractmethod
    def result(self) -> Column:
        """Return the value of each slot."""

    def take(self, slots: Ints) -> Self:
        """Return a copy of the state of the given slots, in that order."""
        taken = type(self).__new__(type(self))
        taken.__dict__.update(self.__dict__)
        taken.size = len(slots)
        taken._capacity = max(len(slots), 1)
        taken.arrays = {name: self._filled(name, slots) for name in self.fields}
        return taken

    def parts(self, size: int) -> Iterator[Self]:
        """Yield copies of the state of each `size` consecutive slots; nothing may be folded in between."""
        for start in range(0, self.size, size):
            yield self.take(np.arange(start, min(start + size, self.size)))

    def _filled(self, name: str, slots: Ints) -> Array:
        if len(slots):
            return self.arrays[name].take(slots)
        dtype, neutral = self.fields[name]
        return np.full(1, neutral, dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return sum(array.nbytes for array in self.arrays.values())

    def held_codes(self) -> Ints | None:
        """Return the value codes that the state refers to, or None if its values are not coded."""
        return None

    def recode(self, mapping: Ints) -> None:  # noqa: B027 - there is nothing to replace where none are held
        """Replace value codes after their coder was compacted."""

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        return {"size": self.size, **{name: array[: self.size] for name, array in self.arrays.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""
        self.grow(state["size"])
        for name in self.fields:
            self.arrays[name][: self.size] = state[name]


def valid_rows(slots: Slots, column: Column) -> tuple[Ints, Array]:
    """Return slots and values without the null rows: aggregates ignore nulls."""
    if column.valid is None:
        return slots.rows, column.values
    rows = column.valid.nonzero()[0]
    return slots.rows.take(rows), column.values.take(rows)
