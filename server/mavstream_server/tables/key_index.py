"""Key indexes: find the rows of a table with a key. Plain arrays, so that they can be stored in a file.

Keys are integers, one array per key column; a text is represented by its code in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Ints
from mavstream_server.columns.pieces import Steps, joined, ordered, pieces, taken

ABSENT = -1
"""The ordinal of a key that no row has."""

# Dense keys are found through slots, at most this many per key; sparse ones by binary search.
_SLOTS_PER_KEY = 4
_FEW_SLOTS = 1 << 12


class KeyOrdinals(NamedTuple):
    """Sorted distinct integers; the ordinal of one is found through slots, or by binary search."""

    keys: Ints
    slots: Ints
    """Ordinals by difference to the lowest key, ABSENT for no key; empty if binary search is used."""

    @classmethod
    def of(cls, values: Ints) -> Steps[tuple[KeyOrdinals, Ints]]:
        """Return the distinct integers, and the ordinal of each value among them, in steps."""
        order = yield from ordered(values)
        in_order = yield from taken(values, order)
        found, ordinals, count = [], np.empty(len(values), dtype=np.int64), 0
        for piece in pieces(len(values)):
            some = in_order[piece]
            new = np.empty(len(some), dtype=np.bool_)
            new[0] = not piece.start or some[0] != in_order[piece.start - 1]
            new[1:] = some[1:] != some[:-1]
            numbers = np.cumsum(new) + (count - 1)
            ordinals[order[piece]] = numbers
            found.append(some[new])
            count = int(numbers[-1]) + 1
            yield
        keys = yield from joined(found)
        slots = np.empty(0, dtype=np.int64)
        if len(keys):
            span = int(keys[-1]) - int(keys[0]) + 1
            if span <= max(_FEW_SLOTS, _SLOTS_PER_KEY * len(keys)):
                slots = np.full(span, ABSENT, dtype=np.int64)
                for piece in pieces(len(keys)):
                    slots[keys[piece] - keys[0]] = np.arange(piece.start, piece.stop)
                    yield
        return cls(keys, slots), ordinals

    def find(self, values: Ints) -> Ints:
        """Return the ordinal of each integer, ABSENT for unknown ones."""
        if not len(self.keys):
            return np.full(len(values), ABSENT, dtype=np.int64)
        if not len(self.slots):
            ordinals = np.minimum(np.searchsorted(self.keys, values), len(self.keys) - 1)
            return np.where(self.keys.take(ordinals) == values, ordinals, ABSENT)
        lowest: np.int64 = self.keys[0]
        inside = (values >= lowest) & (values <= self.keys[-1])
        if inside.all():
            return self.slots.take(values - lowest)
        found = np.full(len(values), ABSENT, dtype=np.int64)
        found[inside] = self.slots.take(values[inside] - lowest)
        return found


class KeyIndex(NamedTuple):
    """The rows of a table sorted by key; rows with equal keys are in table order."""

    columns: tuple[KeyOrdinals, ...]
    """The distinct values of each key column."""
    pairs: tuple[KeyOrdinals, ...]
    """For each key column after the first, the distinct pairs of the key so far and its value."""
    begins: Ints
    """The start of a key's rows in `rows`, by the key's ordinal; has one more entry at the end."""
    rows: Ints

    @classmethod
    def building(cls, columns: Sequence[Ints], rows: Ints) -> Steps[KeyIndex]:
        """Index rows, given by row number, by the keys in the columns, in steps."""
        ordinals: list[KeyOrdinals] = []
        pairs: list[KeyOrdinals] = []
        codes = np.zeros(len(rows), dtype=np.int64)
        for number, values in enumerate(columns):
            known, found = yield from KeyOrdinals.of(values)
            ordinals.append(known)
            if number:
                pair, codes = yield from KeyOrdinals.of(codes * len(known.keys) + found)
                pairs.append(pair)
            else:
                codes = found
        begins = np.zeros((int(codes.max()) + 1 if len(codes) else 0) + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes), out=begins[1:])
        by_key = yield from taken(rows, (yield from ordered(codes)))
        return cls(tuple(ordinals), tuple(pairs), begins, by_key)

    @property
    def unique(self) -> bool:
        """Whether no two rows have the same key."""
        return len(self.begins) == len(self.rows) + 1

    @property
    def nbytes(self) -> int:
        """Bytes held or mapped."""
        ordinals = sum(each.keys.nbytes + each.slots.nbytes for each in (*self.columns, *self.pairs))
        return ordinals + self.begins.nbytes + self.rows.nbytes

    def find(self, columns: Sequence[Ints]) -> Ints:
        """Return the ordinal of each key, ABSENT if no row has it; negative text codes match nothing."""
        found = self.columns[0].find(columns[0])
        for values, ordinals, pair in zip(columns[1:], self.columns[1:], self.pairs, strict=True):
            second = ordinals.find(values)
            packed = pair.find(found * len(ordinals.keys) + second)
            found = np.where((found < 0) | (second < 0), ABSENT, packed)
        return found
