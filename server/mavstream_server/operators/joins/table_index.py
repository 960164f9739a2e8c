"""Table indexes: look up the rows of a table by key, for a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints, Mask, both_valid
from mavstream_server.columns.keys import key_ints
from mavstream_server.columns.pieces import portions
from mavstream_server.columns.text_moves import TextMoves
from mavstream_server.operators.joins import sorted_run
from mavstream_server.operators.joins.sorted_run import pairs_of
from mavstream_server.tables.index_file import VersionIndex
from mavstream_server.tables.key_index import ABSENT


class Matches(NamedTuple):
    """The matches of the rows in [start, stop) of a batch: pairs of batch rows and table rows, in order."""

    start: int
    stop: int
    asking: Ints
    found: Ints


class TableIndex:
    """Looks up batches in the index of a table version. Keys that are not found are not stored."""

    def __init__(self, index: VersionIndex, types: Sequence[FieldType]) -> None:
        self._index = index.keys
        self._encoders: list[Callable[[Column], Ints]] = []
        self._moves: list[TextMoves] = []
        for type_, look in zip(types, index.lookups, strict=True):
            if look is None:
                self._encoders.append(lambda column, type_=type_: key_ints(column, type_))  # type: ignore[misc]
            else:
                self._moves.append(TextMoves(look))
                self._encoders.append(self._moves[-1].find)

    @property
    def nbytes(self) -> int:
        """Bytes held or mapped."""
        return self._index.nbytes + sum(moves.nbytes for moves in self._moves)

    def matches(self, columns: Sequence[Column], size: int) -> Iterator[Matches]:
        """Look up rows by their keys; yields chunks of bounded size, however many rows a key has."""
        codes = self._found(columns, size)
        rows, begins = self._index.rows, self._index.begins
        if self._index.unique:
            asking = np.flatnonzero(codes >= 0)
            found = begins.take(codes if len(asking) == size else codes.take(asking))
            yield Matches(0, size, asking, rows.take(found))
            return
        known = np.maximum(codes, 0)
        firsts = begins.take(known)
        counts = np.where(codes >= 0, begins.take(known + 1) - firsts, 0)
        for start, stop in portions(counts, sorted_run.PAIRS_AT_ONCE):
            asking, indexes = pairs_of(start, firsts[start:stop], counts[start:stop])
            yield Matches(start, stop, asking, rows.take(indexes))

    def _found(self, columns: Sequence[Column], size: int) -> Ints:
        if not columns:  # every row of the table is found
            return np.full(size, 0 if len(self._index.rows) else ABSENT, dtype=np.int64)
        codes = self._index.find(
            [encode(column) for encode, column in zip(self._encoders, columns, strict=True)]
        )
        valid: Mask | None = None
        for column in columns:
            valid = both_valid(valid, column.valid)
        return codes if valid is None else np.where(valid, codes, ABSENT)
