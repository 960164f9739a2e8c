"""Rows from files and stdin, for `mavstream stream append`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import typer

from mavstream_protocol import FieldType, Schema
from mavstream_protocol.tuples import arrow_schema, decode_lines


class TupleFormat(StrEnum):
    """The format of a file with rows."""

    JSON = "json"
    """A list of rows, or an object of columns."""
    NDJSON = "ndjson"
    """A JSON object per line."""
    CSV = "csv"
    """With a header line."""
    PARQUET = "parquet"


_ENDINGS = {
    ".json": TupleFormat.JSON,
    ".ndjson": TupleFormat.NDJSON,
    ".jsonl": TupleFormat.NDJSON,
    ".csv": TupleFormat.CSV,
    ".parquet": TupleFormat.PARQUET,
}


def read_tuples(path: Path, format_: TupleFormat | None, schema: Schema) -> Any:
    """Return rows, columns or a table, as the SDK accepts them; raises BadParameter."""
    dash = str(path) == "-"
    chosen = format_ or _ENDINGS.get(path.suffix.lower()) or (TupleFormat.NDJSON if dash else None)
    if chosen is None:
        raise typer.BadParameter(
            f"cannot tell the format of '{path}' from its extension: give --format", param_hint="FILE"
        )
    try:
        content = sys.stdin.buffer.read() if dash else path.read_bytes()
        return _read(content, chosen, schema)
    except (OSError, orjson.JSONDecodeError, pa.ArrowInvalid) as error:
        raise typer.BadParameter(f"'{path}' cannot be read: {error}", param_hint="FILE") from None


def _read(content: bytes, format_: TupleFormat, schema: Schema) -> Any:
    match format_:
        case TupleFormat.JSON:
            return orjson.loads(content)
        case TupleFormat.NDJSON:
            return decode_lines(schema, content)
        case TupleFormat.CSV:
            return _read_csv(content, schema)
        case TupleFormat.PARQUET:
            from pyarrow import parquet

            return parquet.read_table(pa.BufferReader(content))


def _read_csv(content: bytes, schema: Schema) -> pa.Table:
    from pyarrow import csv

    types = {field.name: field.type for field in arrow_schema(schema)}
    # Timestamps are read as text, which the protocol parses.
    types |= {field.name: pa.string() for field in schema if field.type is FieldType.TIMESTAMP}
    options = csv.ConvertOptions(
        column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(pa.BufferReader(content), convert_options=options)
