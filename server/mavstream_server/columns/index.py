"""Indexes: dense codes for integer keys, in the order of their first appearance."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.column import Ints
from mavstream_server.columns.hash_table import HashTable
from mavstream_server.columns.pieces import Steps, copied, finished, fits, pieces

# A direct table may have this many slots, or this many per key; beyond that a hash table is used.
_TABLE_SLOTS = 1 << 16
_SLOTS_PER_KEY = 16
_FEW = 128  # values that are numbered one by one, which takes less time than sorting them
_TIMES = 4  # as many rows are looked up at once as in other pieces, since most keys are known


class IntIndex:
    """Maps int64 keys to 0, 1, 2, ... in order of first appearance, vectorised.

    Dense keys are looked up in a direct table (an array indexed by key - base) with one gather; sparse ones
    in a hash table. Both grow by being built anew, for which `reserve` needs more steps the more keys there
    are.
    """

    __slots__ = ("_base", "_hash", "_keys", "_table", "count")

    def __init__(self) -> None:
        self.count = 0
        self._keys: Ints = np.empty(16, dtype=np.int64)
        self._base = 0
        self._table: Ints | None = np.empty(0, dtype=np.int64)
        self._hash: HashTable | None = None

    @classmethod
    def of(cls, keys: Ints) -> Steps[IntIndex]:
        """Return an index of distinct keys whose codes are their indexes; may keep the array."""
        index = cls()
        index.count = len(keys)
        if len(keys) < len(index._keys):  # small indexes have the same size however they were made
            index._keys[: len(keys)] = keys
        else:
            index._keys = keys
        if len(keys):
            yield from index._rebuild(int(keys.min()), int(keys.max()), 0)
        return index

    @property
    def keys(self) -> Ints:
        """The keys by code."""
        return self._keys[: self.count]

    @property
    def dense(self) -> bool:
        """Whether keys are looked up in a direct table."""
        return self._table is not None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        table = self._table if self._hash is None else self._hash
        return self._keys.nbytes + (0 if table is None else table.nbytes)

    def reserve(self, values: Ints) -> Steps[None]:
        """Prepare for keys to be added, in steps: `encode` then takes time for these alone."""
        if not len(values):
            return
        total = self.count + len(values)
        if self._table is not None:
            if self._slots_needed(values) >= len(self._table):
                low, high = int(values.min()), int(values.max())
                if self.count:
                    known = self.keys
                    low, high = min(low, int(known.min())), max(high, int(known.max()))
                yield from self._rebuild(low, high, len(values))
        elif self._hash is not None and total > self._hash.capacity:
            self._hash = yield from HashTable.of(self.keys, len(values))
        if total > len(self._keys):
            self._keys = yield from copied(self.keys, max(total, 2 * len(self._keys)))

    def encoding(self, values: Ints) -> Steps[Ints]:
        """Return the codes of keys, in steps; new keys get the next codes."""
        if fits(len(values), _TIMES):
            if self.count + len(values) > len(self._keys) or self._hash is not None:
                yield from self.reserve(values)
            elif len(values) and self._table is not None:
                slots = values - self._base if self._base else values
                if int(np.maximum.reduce(slots.view(np.uint64))) < len(self._table):
                    return self._encode_slots(self._table, slots)
                yield from self.reserve(values)
            return self.encode(values)
        codes = np.empty(len(values), dtype=np.int64)
        for piece in pieces(len(values)):
            yield from self.reserve(values[piece])
            codes[piece] = self.encode(values[piece])
            yield
        return codes

    def encode(self, values: Ints) -> Ints:
        """Return the codes of keys; new keys get the next codes."""
        if not len(values):
            return values
        table = self._table
        if table is None:
            return self._encode_hashed(values)
        slots = values - self._base if self._base else values
        # As unsigned integers, slots before the table are behind it: one comparison covers both ends.
        if int(np.maximum.reduce(slots.view(np.uint64))) >= len(table):
            finished(self.reserve(values))
            table = self._table
            if table is None:
                return self._encode_hashed(values)
            slots = values - self._base
        return self._encode_slots(table, slots)

    def _encode_slots(self, table: Ints, slots: Ints) -> Ints:
        codes = table.take(slots)
        unknown = codes < 0
        if np.count_nonzero(unknown):
            self._add_slots(table, slots[unknown])
            codes = table.take(slots)
        return codes

    def find(self, values: Ints) -> Ints:
        """Return the codes of keys; -1 for those that are not known."""
        table = self._table
        if table is None:
            assert self._hash is not None
            return self._hash.find(values, self.keys)
        codes = np.full(len(values), -1, dtype=np.int64)
        slots = values - self._base
        inside = np.flatnonzero((slots >= 0) & (slots < len(table)))
        codes[inside] = table.take(slots.take(inside))
        return codes

    def _slots_needed(self, values: Ints) -> int:
        """Return the highest slot of the values in a direct table, as an unsigned integer."""
        return int(np.maximum.reduce((values - self._base).view(np.uint64)))

    def _add_slots(self, table: Ints, slots: Ints) -> None:
        """Assign the next codes to new slots, in the order of their first appearance, without sorting."""
        numbers = np.arange(-1 - len(slots), -1)  # below the -1 of an empty slot: the first row prevails
        np.minimum.at(table, slots, numbers)
        distinct = slots[table.take(slots) == numbers]
        table[distinct] = np.arange(self.count, self.count + len(distinct))
        self._append(distinct + self._base)

    def _encode_hashed(self, values: Ints) -> Ints:
        table = self._hash
        assert table is not None
        codes = table.find(values, self.keys)
        missing = np.flatnonzero(codes < 0)
        if not len(missing):
            return codes
        if self.count + len(missing) > table.capacity:
            table = self._hash = finished(HashTable.of(self.keys, len(missing)))
        new, numbers = _numbered(values.take(missing))
        codes[missing] = numbers + self.count
        table.add(new, self.count)
        self._append(new)
        return codes

    def _append(self, keys: Ints) -> None:
        total = self.count + len(keys)
        if total > len(self._keys):
            self._keys = finished(copied(self.keys, max(total, 2 * len(self._keys))))
        self._keys[self.count : total] = keys
        self.count = total

    def _rebuild(self, low: int, high: int, coming: int) -> Steps[None]:
        """Build a table from low to high, with room to grow upwards, or fall back to hashing."""
        span = high - low + 1
        if span > max(_TABLE_SLOTS, _SLOTS_PER_KEY * (self.count + coming)):
            self._hash = yield from HashTable.of(self.keys, coming)
            self._table = None
            return
        table = np.empty(span + max(span, 1024), dtype=np.int64)
        for piece in pieces(len(table)):
            table[piece] = -1
            yield
        for piece in pieces(self.count):
            table[self._keys[piece] - low] = np.arange(piece.start, piece.stop)
            yield
        self._base, self._table = low, table


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values in the order of their first appearance, and the number of each value."""
    if len(values) <= _FEW:
        every = values.tolist()
        known = {value: number for number, value in enumerate(dict.fromkeys(every))}
        return np.array(list(known), dtype=np.int64), np.array([known[value] for value in every])
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = first.argsort()
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order))
    return distinct.take(order), numbers.take(inverse)
