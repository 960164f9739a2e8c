"""Formats of a table's rows: CSV, JSON, Parquet or Arrow, read into one batch of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from mavstream_protocol.errors import InvalidTuples, MavstreamError, ProblemItem
from mavstream_protocol.schema import Schema
from mavstream_protocol.table_rows.csv_cells import read_csv, typed_csv
from mavstream_protocol.table_rows.fields import arrow_fields, json_fields, text_fields
from mavstream_protocol.table_rows.media import ARROW, ARROW_FILE, CSV, JSON, NDJSON, PARQUET
from mavstream_protocol.tuples import decode_batch, decode_columns, decode_rows
from mavstream_protocol.tuples.findings import refuse_body
from mavstream_protocol.tuples.json_text import parse_json

MOST_ROWS = 1 << 24


class TooManyRows(MavstreamError):
    """The rows exceed the memory limit or the maximum number of rows of a table."""

    code = "table_too_large"

    def __init__(self, nbytes: int, rows: int) -> None:
        super().__init__(f"the table takes {nbytes} bytes for {rows} rows or more: give less")
        self.nbytes = nbytes
        self.rows = rows


def read_rows(kind: str, body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    """Return the fields and rows of a body of a known kind; without a schema its fields are found in it.

    Raises InvalidTuples that names rows and columns, and TooManyRows beyond `limit` bytes.
    """
    try:
        found, batch = READERS[kind](body, schema, limit)
    except InvalidTuples as error:
        raise InvalidTuples([_of_table(item) for item in error.items]) from None
    if batch.nbytes > limit or batch.num_rows > MOST_ROWS:
        raise TooManyRows(batch.nbytes, batch.num_rows)
    return found, batch


def _of_table(item: ProblemItem) -> ProblemItem:
    """Replace "stream" by "table" in the errors of the tuple readers."""
    detail = item.detail.replace("is not in the stream", "is not in the table")
    return item.model_copy(update={"detail": detail.replace("tuples cannot be", "the table cannot be")})


Read = Callable[[bytes, Schema | None, int], tuple[Schema, pa.RecordBatch]]


def _read_csv(body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    texts = read_csv(body)
    found = schema or text_fields(texts)
    return found, typed_csv(found, texts)


def _read_json(body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    return _from_json(parse_json(body), schema)


def _read_lines(body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    rows = []
    for number, line in enumerate(line for line in body.split(b"\n") if line.strip()):
        try:
            rows.append(parse_json(line))
        except InvalidTuples as error:
            detail = f"row {number} cannot be read as JSON: {error.items[0].detail}"
            raise InvalidTuples(
                [ProblemItem(pointer=f"rows/{number}", code="invalid_json", detail=detail)]
            ) from None
    return _from_json(rows, schema)


def _from_json(parsed: Any, schema: Schema | None) -> tuple[Schema, pa.RecordBatch]:
    for key in ("rows", "columns"):
        # A table may have a column of that name; then the object is its columns.
        if isinstance(parsed, Mapping) and set(parsed) == {key} and (schema is None or key not in schema):
            parsed = parsed[key]
            break
    found = schema or json_fields(parsed)
    decode = decode_columns if isinstance(parsed, Mapping) else decode_rows
    return found, decode(found, parsed)


def _read_parquet(body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    # Imported here: it takes time and memory, and many servers never receive a Parquet file.
    from pyarrow import parquet

    def batches() -> tuple[pa.Schema, list[pa.RecordBatch]]:
        file = parquet.ParquetFile(pa.BufferReader(body))
        return file.schema_arrow, _gathered(file.iter_batches(1 << 16), limit)

    return _from_arrow("a Parquet file", batches, schema)


def _read_arrow(body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    def batches() -> tuple[pa.Schema, list[pa.RecordBatch]]:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            return reader.schema, _gathered(reader, limit)

    return _from_arrow("an Arrow IPC stream", batches, schema)


def _read_arrow_file(body: bytes, schema: Schema | None, limit: int) -> tuple[Schema, pa.RecordBatch]:
    def batches() -> tuple[pa.Schema, list[pa.RecordBatch]]:
        with pa.ipc.open_file(pa.py_buffer(body)) as reader:
            parts = (reader.get_batch(number) for number in range(reader.num_record_batches))
            return reader.schema, _gathered(parts, limit)

    return _from_arrow("an Arrow IPC file", batches, schema)


def _gathered(batches: Iterable[pa.RecordBatch], limit: int) -> list[pa.RecordBatch]:
    """Return batches from outside, checked; packed data is unpacked no further than the limit."""
    gathered: list[pa.RecordBatch] = []
    nbytes = rows = 0
    for batch in batches:
        # Offsets and lengths come from the client; without this check a wrong one reads memory outside the
        # buffer.
        batch.validate(full=True)
        gathered.append(batch)
        rows += batch.num_rows
        nbytes += batch.nbytes
        if nbytes > limit or rows > MOST_ROWS:
            raise TooManyRows(nbytes, rows)
    return gathered


def _from_arrow(
    what: str, read: Callable[[], tuple[pa.Schema, list[pa.RecordBatch]]], schema: Schema | None
) -> tuple[Schema, pa.RecordBatch]:
    try:
        got, batches = read()
        found = schema or arrow_fields(got)
        table = pa.Table.from_batches(batches, got).combine_chunks()
        parts = table.to_batches()
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise refuse_body("unreadable_file", f"the body cannot be read as {what}: {reason}") from None
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in got], schema=got)
    return found, decode_batch(found, parts[0] if parts else empty)


READERS: dict[str, Read] = {
    CSV: _read_csv,
    JSON: _read_json,
    NDJSON: _read_lines,
    PARQUET: _read_parquet,
    ARROW: _read_arrow,
    ARROW_FILE: _read_arrow_file,
}
