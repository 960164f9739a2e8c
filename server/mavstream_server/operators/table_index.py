"""Table indexes: the rows of a table by key, found for a whole batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints, Mask, both_valid
from mavstream_server.columns.keys import KeyCoder
from mavstream_server.operators.sorted_run import portions


class Matches(NamedTuple):
    """What rows `start` to `stop` of a batch found: pairs of rows of the batch and of the table, in order."""

    start: int
    stop: int
    asking: Ints
    found: Ints


class TableIndex:
    """The rows of a table, sorted by the codes of their keys; equal keys in the order of the table.

    Rows with a null key are in nobody's way: null equals nothing.
    """

    def __init__(self, columns: Sequence[Column], types: Sequence[FieldType], rows: int) -> None:
        valid: Mask | None = None
        for column in columns:
            valid = both_valid(valid, column.valid)
        kept = np.arange(rows) if valid is None else np.flatnonzero(valid)
        self._keys = KeyCoder(types)
        codes = self._keys.encode([column.take(kept) for column in columns], len(kept))
        self._rows: Ints = kept.take(codes.argsort(kind="stable"))
        self._counts: Ints = np.bincount(codes, minlength=max(self._keys.count, 1))
        self._begins: Ints = np.cumsum(self._counts) - self._counts
        self._unique = bool(self._counts.max() <= 1)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._rows.nbytes + self._counts.nbytes + self._begins.nbytes + self._keys.nbytes

    def matches(self, columns: Sequence[Column], size: int) -> Iterator[Matches]:
        """Look rows up by their keys; in portions of bounded size, however many rows a key has."""
        codes = self._keys.find(columns, size)
        if self._unique:
            asking = np.flatnonzero(codes >= 0)
            found = self._begins.take(codes if len(asking) == size else codes.take(asking))
            yield Matches(0, size, asking, self._rows.take(found))
            return
        known = np.maximum(codes, 0)
        counts = np.where(codes >= 0, self._counts.take(known), 0)
        begins = self._begins.take(known)
        for start, stop in portions(counts):
            part = counts[start:stop]
            offsets = begins[start:stop] - (np.cumsum(part) - part)
            places = np.arange(int(part.sum())) + np.repeat(offsets, part)
            yield Matches(start, stop, np.repeat(np.arange(start, stop), part), self._rows.take(places))
