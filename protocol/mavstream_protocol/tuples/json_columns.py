"""Tuples as JSON columns, `{"a": [1, 2], "b": ["x", "y"]}`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa

from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples.canonical import canonical_batch
from mavstream_protocol.tuples.cells import shown
from mavstream_protocol.tuples.columns import read_column, write_column
from mavstream_protocol.tuples.findings import MOST_TOLD, Findings, refuse_body
from mavstream_protocol.tuples.json_text import JsonText, parse_json


def decode_columns(schema: Schema, payload: JsonText | Mapping[str, object]) -> pa.RecordBatch:
    """Return the canonical batch of a JSON object of equally long lists, as text or already parsed.

    A nullable column may be left out, which means null in every row. Raises InvalidTuples.
    """
    columns = parse_json(payload) if isinstance(payload, JsonText) else payload
    if not isinstance(columns, Mapping):
        raise refuse_body(
            "not_columns",
            f'tuples must be an object of lists such as {{"a": [1]}}, got {shown(columns)}',
        )
    findings = Findings()
    _check_shape(schema, columns, findings)
    findings.raise_if_any()
    length = len(next(iter(columns.values()), ()))
    arrays = [read_column(field, columns.get(field.name, [None] * length), findings) for field in schema]
    findings.raise_if_any()
    return canonical_batch(schema, arrays)


def columns_of(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return the columns as lists that any JSON writer accepts; timestamps are ISO 8601 text."""
    return {name: write_column(batch.column(name)) for name in batch.schema.names}


def encode_columns(batch: pa.RecordBatch) -> bytes:
    """Return a JSON object of lists, one per field."""
    return orjson.dumps(
        {name: _writable(batch.column(name)) for name in batch.schema.names},
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def _writable(array: pa.Array) -> Any:
    # The JSON writer reads numpy numbers in place, which avoids a Python object for each.
    if array.null_count == 0 and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return array.to_numpy(zero_copy_only=False)
    return write_column(array)


def _check_shape(schema: Schema, columns: Mapping[str, object], findings: Findings) -> None:
    for name in islice((name for name in columns if name not in schema), MOST_TOLD):
        findings.in_column(
            str(name)[:64],
            "unknown_field",
            f"column {shown(name)} is not in the stream: its fields are {', '.join(schema.names)}",
        )
    first: tuple[str, int] | None = None
    for field in schema:
        values = columns.get(field.name)
        if field.name not in columns:
            if not field.nullable:
                findings.in_column(
                    field.name,
                    "missing_field",
                    f"column '{field.name}' is missing: give it one value per row",
                )
        elif not isinstance(values, list | tuple):
            findings.in_column(
                field.name, "not_a_list", f"column '{field.name}' must be a list, got {shown(values)}"
            )
        elif first is None:
            first = field.name, len(values)
        elif len(values) != first[1]:
            findings.in_column(
                field.name,
                "uneven_columns",
                f"column '{field.name}' has {len(values)} values and column '{first[0]}' has {first[1]}: "
                "all columns must be equally long",
            )
