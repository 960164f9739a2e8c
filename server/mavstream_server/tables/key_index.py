"""Key indexes: which rows of a table have a key. Plain arrays, so that a file can hold them.

Keys are given as integers, a column of them per key column; a text is its code in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Ints

ABSENT = -1
"""What is found for a key that no row has."""

# Close keys have a slot each, of which so many per key may be empty; scattered ones are searched for.
_SLOTS_PER_KEY = 4
_FEW_SLOTS = 1 << 12


class Places(NamedTuple):
    """Distinct integers in order; the place of one is found through slots, or by binary search."""

    keys: Ints
    slots: Ints
    """The place by how much an integer is above the lowest one, ABSENT for no key; empty without slots."""

    @classmethod
    def of(cls, values: Ints) -> tuple[Places, Ints]:
        """Return the places of integers, and the place of each."""
        keys, places = np.unique(values, return_inverse=True)
        slots = np.empty(0, dtype=np.int64)
        if len(keys):
            span = int(keys[-1]) - int(keys[0]) + 1
            if span <= max(_FEW_SLOTS, _SLOTS_PER_KEY * len(keys)):
                slots = np.full(span, ABSENT, dtype=np.int64)
                slots[keys - keys[0]] = np.arange(len(keys))
        return cls(keys, slots), places

    def find(self, values: Ints) -> Ints:
        """Return the place of each integer, ABSENT for unknown ones."""
        if not len(self.keys):
            return np.full(len(values), ABSENT, dtype=np.int64)
        if not len(self.slots):
            places = np.minimum(np.searchsorted(self.keys, values), len(self.keys) - 1)
            return np.where(self.keys.take(places) == values, places, ABSENT)
        lowest: np.int64 = self.keys[0]
        inside = (values >= lowest) & (values <= self.keys[-1])
        if inside.all():
            return self.slots.take(values - lowest)
        found = np.full(len(values), ABSENT, dtype=np.int64)
        found[inside] = self.slots.take(values[inside] - lowest)
        return found


class KeyIndex(NamedTuple):
    """The rows of a table sorted by key; equal keys in the order of the table."""

    columns: tuple[Places, ...]
    """Of the values of each key column."""
    pairs: tuple[Places, ...]
    """Of the key up to a column and the value in the next one, from the second column on."""
    begins: Ints
    """Where the rows of a key begin in `rows`, by the key's place; one more behind the last."""
    rows: Ints

    @classmethod
    def build(cls, columns: Sequence[Ints], rows: Ints) -> KeyIndex:
        """Index rows, given by number, whose keys stand in the columns."""
        places: list[Places] = []
        pairs: list[Places] = []
        codes = np.zeros(len(rows), dtype=np.int64)
        for number, values in enumerate(columns):
            known, found = Places.of(values)
            places.append(known)
            if number:
                pair, codes = Places.of(codes * len(known.keys) + found)
                pairs.append(pair)
            else:
                codes = found
        begins = np.zeros((int(codes.max()) + 1 if len(codes) else 0) + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes), out=begins[1:])
        return cls(tuple(places), tuple(pairs), begins, rows.take(codes.argsort(kind="stable")))

    @property
    def unique(self) -> bool:
        """Whether no two rows have the same key."""
        return len(self.begins) == len(self.rows) + 1

    @property
    def nbytes(self) -> int:
        """Bytes held or mapped."""
        places = sum(each.keys.nbytes + each.slots.nbytes for each in (*self.columns, *self.pairs))
        return places + self.begins.nbytes + self.rows.nbytes

    def find(self, columns: Sequence[Ints]) -> Ints:
        """Return the place of each key, ABSENT where no row has it; negative integers of texts are no key."""
        found = self.columns[0].find(columns[0])
        for values, places, pair in zip(columns[1:], self.columns[1:], self.pairs, strict=True):
            second = places.find(values)
            packed = pair.find(found * len(places.keys) + second)
            found = np.where((found < 0) | (second < 0), ABSENT, packed)
        return found
