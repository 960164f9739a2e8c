"""Result chunks: consecutive rows of a result log that subscribers share, and their encodings."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mavstream_protocol.schema import FieldType, Schema
from mavstream_protocol.tuples import arrow_schema, encode_message, encode_rows
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.results import RowsHeader
from mavstream_server.columns.arrow import arrow_from_columns
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.log import Cursor, Frame, GapError
from mavstream_server.results.line_formats import encode_csv, encode_events, encode_json_lines
from mavstream_server.results.row_metadata import gather_rows, with_metadata

MOST_BYTES = 1 << 20

# Bytes of a value in JSON besides the text of strings: quotes, colon, comma, digits.
_VALUE_BYTES = 24


class ResultFormat(StrEnum):
    """The encoding of rows that a subscriber asked for."""

    ROWS = "rows"
    """JSON, a list of objects."""
    ARROW = "arrow"
    EVENTS = "events"
    """Server-sent events, one per row."""
    LINES = "lines"
    """JSON, an object per line."""
    CSV = "csv"


PUSHED = (ResultFormat.ROWS, ResultFormat.ARROW)
"""The formats of websockets; the others are those of HTTP responses."""
CHUNK_ROWS = dict.fromkeys(ResultFormat, 500) | {ResultFormat.ARROW: 5_000}
"""The most rows of a chunk by format: encoding one blocks the event loop, for 1 us per row in JSON."""


class Origin(NamedTuple):
    """Which plan has answered a row, and since which start."""

    epoch: int
    revision: int
    schema: Schema
    """The schema of the plan's answers."""


class ResultChunk(NamedTuple):
    """Rows of one origin from offset `start` up to, not including, `stop`; at least one row."""

    start: int
    stop: int
    origin: Origin
    schema: Schema
    """The schema of the rows: that of the origin, with the columns of the metadata where it is wanted."""
    batch: pa.RecordBatch


def read_chunk(
    cursor: Cursor, most_rows: int, most_bytes: int = MOST_BYTES, *, metadata_of: str | None = None
) -> ResultChunk | None:
    """Read the next rows at a cursor, or None at the end of the log; raises GapError.

    The chunk ends where the epoch or the plan changes, and where it would exceed about `most_bytes` as JSON.
    With `metadata_of`, which names the query in errors, rows have their metadata; raises Conflict then.
    """
    while spans := cursor.take(most_rows):
        rows = [span for span in spans if span[2] > span[1]]
        if rows:
            break
    else:
        return None
    origin = _origin(rows[0][0])
    rows = rows[: next((i for i, (one, *_) in enumerate(rows) if _origin(one) != origin), len(rows))]
    schema = origin.schema if metadata_of is None else with_metadata(origin.schema, metadata_of)
    start = rows[0][0].first_position + rows[0][1]
    columns = gather_rows(rows, schema)
    count = sum(stop - first for _, first, stop in rows)
    fitting = fitting_rows(columns, schema, count, most_bytes)
    if fitting < count:
        columns = {name: column.slice(0, fitting) for name, column in columns.items()}
    if start + fitting < cursor.position:
        cursor.seek(start + fitting)
    return ResultChunk(start, start + fitting, origin, schema, plain_batch(columns, schema))


_LINES = {
    ResultFormat.EVENTS: encode_events,
    ResultFormat.LINES: encode_json_lines,
    ResultFormat.CSV: encode_csv,
}


def encode_chunk(chunk: ResultChunk, format_: ResultFormat) -> str | bytes:
    """Return the message with the rows of a chunk: text for JSON, binary for Arrow."""
    start, stop, (epoch, *_), _, batch = chunk
    if format_ is ResultFormat.ARROW:
        header = RowsHeader(offset=start, epoch=epoch, count=stop - start)
        return seal(header.model_dump_json().encode(), encode_message(batch))
    if format_ in _LINES:
        return _LINES[format_](batch, start)
    # Built by hand: a model would validate every row again.
    head = b'{"type":"rows","offset":%d,"epoch":%d,"rows":' % (start, epoch)
    return b"".join((head, encode_rows(batch), b"}")).decode()


def _origin(frame: Frame) -> Origin:
    return Origin(frame.producer, frame.sequence, frame.segment.layout.schema)


def origin_of_row(cursor: Cursor) -> Origin | None:
    """Return the origin of the row at a cursor; None if it was removed or is not written."""
    try:
        return next((_origin(frame) for frame, start, stop in cursor.take(1) if stop > start), None)
    except GapError:
        return None


@lru_cache(maxsize=1024)
def _fixed_width(schema: Schema) -> Schema:
    return Schema(tuple(field for field in schema if field.type is not FieldType.STRING))


@lru_cache(maxsize=1024)
def _row_bytes(schema: Schema) -> int:
    """Return the bytes of a row in JSON without the text of its strings."""
    return sum(len(field.name) + _VALUE_BYTES for field in schema)


def fitting_rows(columns: dict[str, Column], schema: Schema, count: int, most_bytes: int) -> int:
    """Return how many of `count` rows fit into `most_bytes` as JSON, at least one."""
    fixed = _row_bytes(schema)
    texts = [
        column for column in columns.values() if column.dictionary is not None and len(column.dictionary)
    ]
    if not texts:
        return min(count, max(most_bytes // fixed, 1))
    sizes = np.full(count, fixed, dtype=np.int64)
    for column in texts:
        assert column.dictionary is not None
        sizes += _text_bytes(column.dictionary).take(column.values)
    return max(int(np.searchsorted(np.cumsum(sizes), most_bytes, "right")), 1)


def _text_bytes(dictionary: Dictionary) -> Ints:
    """Return the UTF-8 size of every text of a dictionary, computed once."""
    sizes = dictionary.memo(
        "utf8_bytes", lambda texts: np.array([len(text.encode()) for text in texts], dtype=np.int64)
    )
    return sizes.astype(np.int64, copy=False)


def plain_batch(columns: dict[str, Column], schema: Schema) -> pa.RecordBatch:
    """Return a record batch with strings as plain text: single messages carry no dictionaries."""
    fixed = arrow_from_columns(columns, _fixed_width(schema))
    arrays = [
        # Only texts that occur are converted: a segment's dictionary may have many more.
        pa.array(columns[field.name].to_list(FieldType.STRING), pa.string())
        if field.type is FieldType.STRING
        else fixed.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))
