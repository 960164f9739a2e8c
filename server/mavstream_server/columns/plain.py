"""Fast path for Arrow batches without nulls or conversions; takes a third of the general path's time."""

from __future__ import annotations

from typing import Any

import numpy as np

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT
from mavstream_protocol.schema import FieldType, Schema
from mavstream_server.columns.column import DTYPES, Array

Plain = Array | list[str]
"""The values of a column, or the texts of a string column."""


def plain_columns(batch: Any, schema: Schema) -> list[Plain] | None:
    """Return the columns of a batch with the schema's types if all values are present and valid.

    If it returns None, `decode_batch` must decide and report errors. Buffers must have been validated.
    """
    columns: list[Plain] = []
    for index, field in enumerate(schema.fields):
        array = batch.column(index)
        if array.null_count:
            return None
        type_ = field.type
        if type_ is FieldType.STRING:
            columns.append(array.to_pylist())
            continue
        if type_ is FieldType.BOOL:
            columns.append(array.to_numpy(zero_copy_only=False))
            continue
        values = np.frombuffer(array.buffers()[1], DTYPES[type_], len(array), 8 * array.offset)
        if type_ is FieldType.FLOAT and not np.isfinite(values).all():
            return None
        if type_ is FieldType.TIMESTAMP and not _fits(values.tolist()):
            return None
        columns.append(values)
    return columns


def _fits(instants: list[int]) -> bool:
    return min(instants) >= FIRST_INSTANT and max(instants) <= LAST_INSTANT
