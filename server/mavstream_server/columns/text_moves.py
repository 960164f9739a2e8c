"""Mapping of the codes of other dictionaries to own codes, computed once per text and dictionary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.dictionary import Dictionary

ABSENT = -1
"""The code of an unknown text, and of null."""

UNRESOLVED = -2
"""The code of a text that was not looked up yet."""


class MovedCodes:
    """Own codes by source code, for the texts looked up so far of the latest source dictionaries."""

    # Rows of two streams may alternate, as on both sides of a join, each with its own dictionary.
    _REMEMBERED = 2

    def __init__(self) -> None:
        self._moves: list[tuple[Dictionary, Ints]] = []

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(moved.nbytes for _, moved in self._moves)

    def of(self, source: Dictionary) -> Ints:
        """Return the own codes by source code, to be filled by the caller where they are UNRESOLVED."""
        for index, (known, moved) in enumerate(self._moves):
            if known is source:
                if len(moved) >= len(source):
                    return moved
                del self._moves[index]
                break
        else:
            moved = np.empty(0, dtype=np.int64)
        room = np.full(max(len(source), 2 * len(moved)), UNRESOLVED, dtype=np.int64)
        room[: len(moved)] = moved
        self._moves = [*self._moves[1 - self._REMEMBERED :], (source, room)]
        return room


class TextMoves:
    """Finds the own codes of texts of any dictionary."""

    def __init__(self, look_up: Callable[[Sequence[str]], Sequence[int]]) -> None:
        """`look_up` returns the own codes of texts, ABSENT for unknown ones."""
        self._look_up = look_up
        self._moved = MovedCodes()

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._moved.nbytes

    def find(self, column: Column) -> Ints:
        """Return the own codes of a column's texts."""
        assert column.dictionary is not None
        if column.valid is None:
            return self._find(column.values, column.dictionary)
        codes = np.full(len(column), ABSENT, dtype=np.int64)
        codes[column.valid] = self._find(column.values[column.valid], column.dictionary)
        return codes

    def _find(self, values: Ints, source: Dictionary) -> Ints:
        moved = self._moved.of(source)
        codes = moved.take(values)
        if np.count_nonzero(codes == UNRESOLVED):
            distinct = np.unique(values[codes == UNRESOLVED])
            texts = source.values
            moved[distinct] = self._look_up([texts[code] for code in distinct.tolist()])
            codes = moved.take(values)
        return codes
