"""Rows from callers (rows, columns, Arrow, data frames) as record batches in canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from mavstream_protocol import InvalidTuples, ProblemItem, Schema
from mavstream_protocol.tuples import decode_batch, decode_columns, decode_rows

Tuples: TypeAlias = (
    Iterable[Mapping[str, Any]] | Mapping[str, Sequence[Any]] | pa.RecordBatch | pa.Table | Any
)
"""A list of rows, a mapping of columns, a record batch, or a table (Arrow, pandas, Polars, ...)."""


def canonical(schema: Schema, tuples: Tuples) -> pa.RecordBatch:
    """Return rows as a batch of a stream's schema; raises InvalidTuples with the wrong rows and fields."""
    if isinstance(tuples, pa.RecordBatch):
        return decode_batch(schema, tuples)
    if isinstance(tuples, Mapping):
        return decode_columns(schema, {name: listed(values) for name, values in tuples.items()})
    if hasattr(tuples, "__arrow_c_stream__"):
        table = without_index(tuples).combine_chunks()
        batches = table.to_batches()
        return decode_batch(schema, batches[0] if batches else _no_rows(table.schema))
    if not isinstance(tuples, Iterable):
        detail = f"expected rows as a list of dicts, or columns, got a value of type {type(tuples).__name__}"
        raise InvalidTuples([ProblemItem(pointer="rows", code="not_rows", detail=detail)])
    return decode_rows(schema, [dict(row) if isinstance(row, Mapping) else row for row in tuples])


def listed(values: Any) -> Any:
    """Return the values of a column as a list of Python values."""
    # Arrays of numpy, pandas and Arrow hold numbers of other types.
    if isinstance(values, list | tuple):
        return values
    return values.tolist() if hasattr(values, "tolist") else list(values)


def without_index(frame: Any) -> pa.Table:
    """Return a data frame of any library as an Arrow table, without the index of pandas."""
    if isinstance(frame, pa.Table):
        return frame
    if type(frame).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    return pa.table(frame)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
