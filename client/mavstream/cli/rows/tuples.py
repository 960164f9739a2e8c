"""Rows from files and stdin, for `mavstream stream append`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import orjson
import pyarrow as pa
import typer

from mavstream_protocol import Schema
from mavstream_protocol.row_files.csv_rows import CsvRows
from mavstream_protocol.row_files.csv_text import read_header
from mavstream_protocol.row_files.json_lines import JsonRows
from mavstream_protocol.row_files.names import column_names
from mavstream_protocol.row_files.pipes import Chunk, Pipe, chunks, without_header
from mavstream_protocol.row_files.reading import Reading
from mavstream_protocol.tuples import decode_lines


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


def read_tuples(path: Path, format_: TupleFormat | None, schema: Schema, reading: Reading) -> Iterator[Any]:
    """Yield rows, columns or tables, as the SDK accepts them, those of a pipe as they come.

    Raises BadParameter, InvalidTuples, BadRowFound.
    """
    dash = str(path) == "-"
    chosen = format_ or _ENDINGS.get(path.suffix.lower()) or (TupleFormat.NDJSON if dash else None)
    if chosen is None:
        raise typer.BadParameter(
            f"cannot tell the format of '{path}' from its extension: give --format", param_hint="FILE"
        )
    try:
        if dash and chosen in (TupleFormat.NDJSON, TupleFormat.CSV):
            yield from _read_lines(chunks(cast(Pipe, sys.stdin.buffer)), chosen, schema, reading)
        else:
            content = sys.stdin.buffer.read() if dash else path.read_bytes()
            yield from _read(content, chosen, schema, reading)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        reason = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"'{path}' cannot be read: {reason}", param_hint="FILE") from None


def _read(content: bytes, format_: TupleFormat, schema: Schema, reading: Reading) -> Iterator[Any]:
    match format_:
        case TupleFormat.JSON:
            yield orjson.loads(content)
        case TupleFormat.NDJSON if reading.bad_rows.policy == "stop":
            yield decode_lines(schema, content)
        case TupleFormat.PARQUET:
            from pyarrow import parquet

            yield parquet.read_table(pa.BufferReader(content))
        case _:
            # In one piece, so that a file that is refused is not appended in part.
            yield from _read_lines(iter([Chunk(content, 1)]), format_, schema, reading)


def _read_lines(
    lines: Iterator[Chunk], format_: TupleFormat, schema: Schema, reading: Reading
) -> Iterator[Any]:
    rows: CsvRows | JsonRows
    if format_ is TupleFormat.CSV:
        header, lines = without_header(lines)
        rows = CsvRows(column_names(read_header(header, reading), reading.rename), schema, reading)
    else:
        rows = JsonRows(schema, reading)
    for chunk in lines:
        batch = rows.parse(chunk.content, chunk.first_line)
        if batch.num_rows:
            yield batch
