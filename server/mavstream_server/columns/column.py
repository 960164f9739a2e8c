"""Columns: arrays of one type with optional nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.dictionary import Dictionary

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DTYPES: dict[FieldType, np.dtype[Any]] = {
    FieldType.INT: np.dtype(np.int64),
    FieldType.FLOAT: np.dtype(np.float64),
    FieldType.BOOL: np.dtype(np.bool_),
    FieldType.STRING: np.dtype(np.int32),  # codes into the column's dictionary
    FieldType.TIMESTAMP: np.dtype(np.int64),
}


class Column:
    """Values of one field for the rows of a batch.

    `valid` is None when no row is null. The value of a null row is undefined, but for strings
    it is still a code that the dictionary has, or any code if the dictionary is empty.
    """

    __slots__ = ("dictionary", "valid", "values")

    def __init__(
        self, values: Array, valid: Mask | None = None, dictionary: Dictionary | None = None
    ) -> None:
        self.values = values
        self.valid = valid
        self.dictionary = dictionary

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows; dictionaries are shared and accounted for by their owners."""
        return self.values.nbytes + (0 if self.valid is None else self.valid.nbytes)

    def take(self, rows: Ints) -> Column:
        """Return the column of the given rows, in that order."""
        valid = self.valid
        return Column(self.values.take(rows), None if valid is None else valid.take(rows), self.dictionary)

    def slice(self, start: int, stop: int) -> Column:
        """Return the rows from start to stop as a view."""
        valid = self.valid
        return Column(self.values[start:stop], None if valid is None else valid[start:stop], self.dictionary)

    def to_list(self, type_: FieldType) -> list[Any]:
        """Return the rows as Python values: None for null, text for strings, ints for timestamps."""
        if type_ is FieldType.STRING:
            assert self.dictionary is not None
            texts = self.dictionary.values
            values: list[Any] = [texts[code] if texts else "" for code in self.values.tolist()]
        else:
            values = self.values.tolist()
        if self.valid is None:
            return values
        return [value if ok else None for value, ok in zip(values, self.valid.tolist(), strict=True)]

    @classmethod
    def from_list(cls, type_: FieldType, values: Sequence[Any]) -> Column:
        """Build a column from Python values, None for null; timestamps are ints of microseconds."""
        missing = [value is None for value in values]
        valid = ~np.array(missing, dtype=bool) if any(missing) else None
        if type_ is FieldType.STRING:
            dictionary, codes = Dictionary(), np.zeros(len(values), dtype=np.int32)
            texts = [value for value in values if value is not None]
            codes[slice(None) if valid is None else valid] = dictionary.add_all(texts)
            return cls(codes, valid, dictionary)
        filled = [0 if value is None else value for value in values]
        return cls(np.array(filled, dtype=DTYPES[type_]), valid)


def null_column(dtype: np.dtype[Any], rows: int) -> Column:
    """Return a column of nulls with one of the types of `DTYPES`."""
    text = dtype == DTYPES[FieldType.STRING]
    return Column(np.zeros(rows, dtype), np.zeros(rows, bool), Dictionary() if text else None)


def both_valid(left: Mask | None, right: Mask | None) -> Mask | None:
    """Combine two validity masks: valid where both are."""
    if left is None:
        return right
    if right is None:
        return left
    return left & right


def concatenate(columns: Sequence[Column]) -> Column:
    """Concatenate columns; strings of different dictionaries are recoded into a new one."""
    if len(columns) == 1:
        return columns[0]
    first, same, valid = columns[0].dictionary, True, None
    for column in columns:
        same = same and column.dictionary is first
        if column.valid is not None and valid is None:
            valid = _validities(columns)
    if same:
        return Column(np.concatenate([column.values for column in columns]), valid, first)
    merged = Dictionary()
    parts = [recode(column, merged) for column in columns]
    return Column(np.concatenate(parts), valid, merged)


def _validities(columns: Sequence[Column]) -> Mask:
    return np.concatenate([np.ones(len(c), dtype=bool) if c.valid is None else c.valid for c in columns])


def recode(column: Column, target: Dictionary) -> npt.NDArray[np.int32]:
    """Return the codes that a string column's rows have in another dictionary, adding texts as needed.

    Only texts that occur in the rows are added, each looked up once.
    """
    assert column.dictionary is not None
    source = column.dictionary.values
    codes = column.values if column.valid is None else np.where(column.valid, column.values, -1)
    used, inverse = np.unique(codes, return_inverse=True)
    present = used[used >= 0]  # the first one may stand for null
    moved = np.zeros(len(used), dtype=np.int32)
    moved[len(used) - len(present) :] = target.add_all([source[code] for code in present.tolist()])
    return moved.take(inverse)
