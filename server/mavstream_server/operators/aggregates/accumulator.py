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
from mavstream_server.columns.pieces import Steps, copied, finished, pieces, taken

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

    def reserve(self, size: int) -> Steps[None]:
        """Provide space for `size` slots, in steps, so that `grow` takes time for the new ones alone."""
        if size > self._capacity:
            capacity = max(size, 2 * self._capacity)
            for name, array in self.arrays.items():
                self.arrays[name] = yield from copied(array[: self.size], capacity)
            self._capacity = capacity

    def grow(self, size: int) -> None:
        """Grow to `size` slots; new ones have the neutral values."""
        if size > self._capacity:
            finished(self.reserve(size))
        for name, (_, neutral) in self.fields.items():
            self.arrays[name][self.size : size] = neutral
        self.size = size

    @abstractmethod
    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Fold rows into their slots; `ordinals` are the numbers of the rows where the call needs them."""

    def updating(self, slots: Slots, column: Column, ordinals: Ints | None) -> Steps[None]:
        """Fold rows into their slots, in steps if that may take long for few rows."""
        self.update(slots, column, ordinals)
        yield from ()

    @abstractmethod
    def merge(self, slots: Ints, other: Self) -> None:
        """Fold slot i of another state into `slots[i]`; the slots are distinct."""

    def merging(self, slots: Ints, other: Self) -> Steps[None]:
        """Do the same in steps."""
        for piece in pieces(other.size):
            self.merge(slots[piece], other.view(piece))
            yield

    @abstractmethod
    def result(self) -> Column:
        """Return the value of each slot."""

    def view(self, slots: slice) -> Self:
        """Return the state of consecutive slots; neither may be changed before the other is dropped."""
        return self._with(
            {name: array[slots] for name, array in self.arrays.items()}, slots.stop - slots.start
        )

    def take(self, slots: Ints) -> Self:
        """Return a copy of the state of the given slots, in that order."""
        return finished(self.taking(slots))

    def taking(self, slots: Ints) -> Steps[Self]:
        """Do the same in steps."""
        arrays = {}
        for name, (dtype, neutral) in self.fields.items():
            if len(slots):
                arrays[name] = yield from taken(self.arrays[name], slots)
            else:
                arrays[name] = np.full(1, neutral, dtype)
        return self._with(arrays, len(slots))

    def answering(self, slots: Ints) -> Steps[Self]:
        """Return a copy of the state of the given slots, in steps, that is only asked for its results."""
        return (yield from self.taking(slots))

    def dividing(self, size: int) -> Steps[Iterator[Self]]:
        """Prepare the results of all slots, in steps; returns the state of each `size` consecutive slots.

        Nothing may be folded in before the last one has been used.
        """
        yield from ()
        return (self.view(slice(start, min(start + size, self.size))) for start in range(0, self.size, size))

    def parts(self, size: int) -> Iterator[Self]:
        """Return the state of each `size` consecutive slots, ready for its results."""
        return finished(self.dividing(size))

    def _with(self, arrays: dict[str, Array], size: int) -> Self:
        """Return a state that is like this one, with other arrays."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.size, other._capacity, other.arrays = size, max(size, 1), arrays
        return other

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return sum(array.nbytes for array in self.arrays.values())

    def held_codes(self) -> Ints | None:
        """Return the value codes that the state refers to, or None if its values are not coded."""
        return None

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace value codes after their coder was compacted, in steps."""
        yield from ()

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
