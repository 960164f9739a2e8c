"""Indexes: dense codes for integer keys, in the order of their first appearance."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.column import Ints

# A direct table may have this many slots, or this many per key; beyond that a hash table is used.
_TABLE_SLOTS = 1 << 16
_SLOTS_PER_KEY = 16


class IntIndex:
    """Maps int64 keys to 0, 1, 2, ... in order of first appearance, vectorised.

    Dense keys are looked up in a direct table (an array indexed by key - base) with one gather; sparse ones
    in a hash table, once per distinct key of a call.
    """

    __slots__ = ("_base", "_hash", "_keys", "_table", "count")

    def __init__(self, keys: Ints | None = None) -> None:
        """Start empty, or with distinct keys whose codes are their indexes."""
        self.count = 0
        self._keys: Ints = np.empty(16, dtype=np.int64)
        self._base = 0
        self._table: Ints | None = np.empty(0, dtype=np.int64)
        self._hash: dict[int, int] = {}
        if keys is not None and len(keys):
            self._append(keys)
            self._rebuild(int(keys.min()), int(keys.max()))

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
        table = 0 if self._table is None else self._table.nbytes
        return self._keys.nbytes + table + 100 * len(self._hash)

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
            table = self._cover(values)
            if table is None:
                return self._encode_hashed(values)
            slots = values - self._base
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
            get = self._hash.get
            return np.array([get(key, -1) for key in values.tolist()], dtype=np.int64)
        codes = np.full(len(values), -1, dtype=np.int64)
        slots = values - self._base
        inside = np.flatnonzero((slots >= 0) & (slots < len(table)))
        codes[inside] = table.take(slots.take(inside))
        return codes

    def _add_slots(self, table: Ints, slots: Ints) -> None:
        """Assign the next codes to new slots, in the order of their first appearance, without sorting."""
        numbers = np.arange(-1 - len(slots), -1)  # below the -1 of an empty slot: the first row prevails
        np.minimum.at(table, slots, numbers)
        distinct = slots[table.take(slots) == numbers]
        table[distinct] = np.arange(self.count, self.count + len(distinct))
        self._append(distinct + self._base)

    def _encode_hashed(self, values: Ints) -> Ints:
        distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        get = self._hash.get
        known = np.array([get(key, -1) for key in distinct.tolist()], dtype=np.int64)
        missing = np.flatnonzero(known < 0)
        if len(missing):
            missing = missing[np.argsort(first[missing])]
            new = distinct[missing]
            codes = np.arange(self.count, self.count + len(new))
            known[missing] = codes
            self._hash.update(zip(new.tolist(), codes.tolist(), strict=True))
            self._append(new)
        return known.take(inverse)

    def _append(self, keys: Ints) -> None:
        total = self.count + len(keys)
        if total > len(self._keys):
            grown = np.empty(max(total, 2 * len(self._keys)), dtype=np.int64)
            grown[: self.count] = self.keys
            self._keys = grown
        self._keys[self.count : total] = keys
        self.count = total

    def _cover(self, values: Ints) -> Ints | None:
        """Rebuild the direct table with a slot for every value; return None if they are too sparse."""
        low, high = int(values.min()), int(values.max())
        if self.count:
            known = self.keys
            low, high = min(low, int(known.min())), max(high, int(known.max()))
        self._rebuild(low, high, len(values))
        return self._table

    def _rebuild(self, low: int, high: int, coming: int = 0) -> None:
        """Build a table from low to high, with room to grow upwards, or fall back to hashing."""
        span = high - low + 1
        if span > max(_TABLE_SLOTS, _SLOTS_PER_KEY * (self.count + coming)):
            self._table = None
            self._hash = dict(zip(self.keys.tolist(), range(self.count), strict=True))
            return
        self._base = low
        self._table = np.full(span + max(span, 1024), -1, dtype=np.int64)
        self._table[self.keys - low] = np.arange(self.count)
