"""Text moves: what the codes of other dictionaries are in ours, worked out once per text and dictionary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.dictionary import Dictionary

ABSENT = -1
"""What a text that we do not have is found as; null too."""

UNASKED = -2
"""What stands for a text that nobody asked for yet."""


class MovedCodes:
    """The newest dictionaries that columns came with: their code -> our code, for texts asked for."""

    # Rows of two streams may take turns, as both sides of a join do, with a dictionary each.
    _REMEMBERED = 2

    def __init__(self) -> None:
        self._moves: list[tuple[Dictionary, Ints]] = []

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(moved.nbytes for _, moved in self._moves)

    def of(self, source: Dictionary) -> Ints:
        """Return our codes by those of a dictionary, UNASKED or as they were set here."""
        for place, (known, moved) in enumerate(self._moves):
            if known is source:
                if len(moved) >= len(source):
                    return moved
                del self._moves[place]
                break
        else:
            moved = np.empty(0, dtype=np.int64)
        room = np.full(max(len(source), 2 * len(moved)), UNASKED, dtype=np.int64)
        room[: len(moved)] = moved
        self._moves = [*self._moves[1 - self._REMEMBERED :], (source, room)]
        return room


class TextMoves:
    """Finds texts of any dictionary in ours."""

    def __init__(self, look: Callable[[Sequence[str]], Sequence[int]]) -> None:
        """`look` returns our codes of texts, ABSENT for those that we do not have."""
        self._look = look
        self._moved = MovedCodes()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._moved.nbytes

    def find(self, column: Column) -> Ints:
        """Return our codes of a column's texts."""
        assert column.dictionary is not None
        if column.valid is None:
            return self._find(column.values, column.dictionary)
        codes = np.full(len(column), ABSENT, dtype=np.int64)
        codes[column.valid] = self._find(column.values[column.valid], column.dictionary)
        return codes

    def _find(self, values: Ints, source: Dictionary) -> Ints:
        moved = self._moved.of(source)
        codes = moved.take(values)
        if len(codes) and codes.min() == UNASKED:
            distinct = np.unique(values[codes == UNASKED])
            texts = source.values
            moved[distinct] = self._look([texts[code] for code in distinct.tolist()])
            codes = moved.take(values)
        return codes
