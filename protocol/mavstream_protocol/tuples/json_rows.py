"""Tuples as JSON rows, `[{"a": 1}, {"a": 2}]`, or one such object per line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import orjson
import pyarrow as pa

from mavstream_protocol.errors import InvalidTuples, ProblemItem
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples.canonical import canonical_batch
from mavstream_protocol.tuples.cells import MISSING, shown
from mavstream_protocol.tuples.columns import read_column, write_column
from mavstream_protocol.tuples.findings import MOST_TOLD, Findings, refuse_body
from mavstream_protocol.tuples.json_text import JsonText, parse_json


def decode_rows(schema: Schema, payload: JsonText | Sequence[object]) -> pa.RecordBatch:
    """Return the canonical batch of a JSON list of objects, as text or already parsed.

    A nullable field may be left out, which means null. Raises InvalidTuples with the first findings.
    """
    rows = parse_json(payload) if isinstance(payload, JsonText) else payload
    if not isinstance(rows, list | tuple):
        raise refuse_body(
            "not_rows", f'tuples must be a list of objects such as [{{"a": 1}}], got {shown(rows)}'
        )
    findings = Findings()
    columns = _exact_columns(schema, rows)
    if columns is None:
        columns = _lenient_columns(schema, rows, findings)
    arrays = [read_column(field, values, findings) for field, values in zip(schema, columns, strict=True)]
    findings.raise_if_any()
    return canonical_batch(schema, arrays)


def decode_lines(schema: Schema, payload: bytes | bytearray | memoryview) -> pa.RecordBatch:
    """Return the canonical batch of one JSON object per line; blank lines are skipped and not counted."""
    lines = [line for line in bytes(payload).split(b"\n") if line and not line.isspace()]
    try:
        rows = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        raise _bad_line(lines) from None
    return decode_rows(schema, rows)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as objects that any JSON writer accepts; timestamps are ISO 8601 text."""
    names = batch.schema.names
    columns = [write_column(column) for column in batch.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def encode_rows(batch: pa.RecordBatch) -> bytes:
    """Return a JSON list of objects, one per row, every field present."""
    return orjson.dumps(rows_of(batch))


def encode_lines(batch: pa.RecordBatch) -> bytes:
    """Return one JSON object per line, each line ended."""
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows_of(batch))


def _bad_line(lines: Sequence[bytes]) -> InvalidTuples:
    """Return the error for the first of the lines that cannot be read; there is one."""
    row, reason = next((row, reason) for row, line in enumerate(lines) if (reason := _why_unreadable(line)))
    detail = f"row {row} cannot be read as JSON: {reason}"
    return InvalidTuples([ProblemItem(pointer=f"rows/{row}", code="invalid_json", detail=detail)])


def _why_unreadable(line: bytes) -> str | None:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return error.msg
    return None


def _exact_columns(schema: Schema, rows: Sequence[Any]) -> list[Sequence[object]] | None:
    """Return the columns if every row has exactly the fields of the schema, else None."""
    if not rows or set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(schema)}:
        return None
    try:
        if len(schema) == 1:
            return [list(map(itemgetter(schema.names[0]), rows))]
        return list(zip(*map(itemgetter(*schema.names), rows), strict=True))
    except KeyError:
        return None


def _lenient_columns(schema: Schema, rows: Sequence[Any], findings: Findings) -> list[Sequence[object]]:
    """Return the columns, with markers for missing required fields; unknown fields are recorded."""
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            findings.of_row(number, "not_an_object", f"row {number} must be an object, got {shown(row)}")
            # Without its fields, only errors about the rows before it could be added.
            findings.raise_if_any()
    known = frozenset(schema.names)
    strangers = ((number, name) for number, row in enumerate(rows) for name in row if name not in known)
    for number, name in islice(strangers, MOST_TOLD):
        findings.in_row(number, str(name)[:64], "unknown_field", _unknown(schema, name))
    return [
        [row.get(field.name) for row in rows]
        if field.nullable
        else [row.get(field.name, MISSING) for row in rows]
        for field in schema
    ]


def _unknown(schema: Schema, name: object) -> str:
    return f"field {shown(name)} is not in the stream: its fields are {', '.join(schema.names)}"
