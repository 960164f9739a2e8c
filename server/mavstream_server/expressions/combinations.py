"""Distinct combinations of the values of several columns in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Array, Column


def distinct_rows(
    columns: Sequence[Column], types: Sequence[FieldType], rows: Array | None
) -> tuple[list[tuple[Any, ...]], Array]:
    """Return the distinct combinations as Python values, and the index of each row's combination.

    If `rows` is given, only those rows are included. Null is None.
    """
    taken = [column if rows is None else column.take(rows) for column in columns]
    numbers = _numbers(taken[0])
    for column in taken[1:]:
        other = _numbers(column)
        # Numbers are dense, so the product of two counts stays far below 2**63.
        numbers = _dense(numbers * (int(other.max(initial=0)) + 1) + other)
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    values = [column.take(first).to_list(type_) for column, type_ in zip(taken, types, strict=True)]
    return list(zip(*values, strict=True)), inverse


def _numbers(column: Column) -> Array:
    """Number the distinct values of a column from 0, including null."""
    values = column.values
    if values.dtype == np.float64:
        values = values.view(np.int64)
    numbers = _dense(values)
    return numbers if column.valid is None else np.where(column.valid, numbers + 1, 0)


def _dense(values: Array) -> Array:
    numbers: Array = np.unique(values, return_inverse=True)[1]
    return numbers
