"""Text pools: one dictionary for the texts of several columns and constants, so that rows can be mixed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from mavstream_server.columns.column import Array, Column, recode
from mavstream_server.columns.dictionary import Dictionary


def derived(source: Dictionary, key: Hashable) -> Dictionary:
    """Return the dictionary derived from a non-empty source under `key`; created once, freed with the source.

    It is stored in a memo of the source: the entry of the first text is the dictionary, and the entries that
    are added as the source grows are not used.
    """

    def fresh(texts: list[str]) -> Array:
        holder = np.empty(len(texts), dtype=object)
        holder[0] = Dictionary()
        return holder

    found: object = source.memo(("derived", key), fresh)[0]
    assert isinstance(found, Dictionary)
    return found


def derived_column(column: Column, key: Hashable, function: Callable[[str], str]) -> Column:
    """Apply a text function once per text of the column's dictionary, which caches the results by `key`."""
    source = column.dictionary
    assert source is not None
    if not len(source):
        return column
    target = derived(source, key)

    def compute(texts: list[str]) -> Array:
        return np.array([target.add(function(text)) for text in texts], dtype=np.int32)

    return Column(source.memo(("codes", key), compute).take(column.values), column.valid, target)


class TextPool:
    """One dictionary for the texts of constants and columns."""

    __slots__ = ("_constants", "_key", "_source", "dictionary")

    def __init__(
        self, constants: Sequence[str], dictionary: Dictionary | None = None, source: Dictionary | None = None
    ) -> None:
        self._constants = tuple(dict.fromkeys(constants))
        self._key = ("pool", self._constants)
        self._source = source
        self.dictionary = Dictionary() if dictionary is None else dictionary
        for text in self._constants:
            self.dictionary.add(text)

    def joined_by(self, columns: Sequence[Column]) -> TextPool:
        """Return a pool that also holds the texts of the columns.

        A single source dictionary, the common case, caches its pool and its mapping across batches.
        """
        dictionaries = [column.dictionary for column in columns if column.dictionary is not None]
        sources = {id(dictionary): dictionary for dictionary in dictionaries if len(dictionary)}
        if not sources:
            return self
        if len(sources) > 1:
            return TextPool(self._constants, Dictionary())
        (source,) = sources.values()
        if not self._constants:
            return TextPool((), source)
        return TextPool(self._constants, derived(source, self._key), source)

    def code(self, text: str) -> int:
        """Return the code of a constant."""
        return self.dictionary.code(text)

    def codes(self, column: Column) -> Array:
        """Return a column's rows as codes of this pool."""
        source, target = column.dictionary, self.dictionary
        assert source is not None
        if source is target:
            return column.values
        if not len(source):
            return np.zeros(len(column.values), dtype=np.int32)
        if source is not self._source:
            return recode(column, target)
        mapping = source.memo(
            ("codes", self._key), lambda texts: np.array([target.add(text) for text in texts], dtype=np.int32)
        )
        return mapping.take(column.values)
