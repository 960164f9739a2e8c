"""Arrow batches without anything unusual, read in a third of the time that looking at everything takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT
from mavstream_protocol.schema import FieldType, Schema
from mavstream_server.columns.column import DTYPES, Array

Plain = Array | list[str]
"""The values of a column, or its texts."""


def plain_columns(batch: Any, schema: Schema) -> list[Plain] | None:
    """Return the columns of a batch of the schema's own types if no value is null or could be refused.

    None decides nothing: `decode_batch` tells what is wrong, if something is. Buffers must be checked.
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
