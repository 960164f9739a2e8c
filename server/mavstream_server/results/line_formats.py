"""Result rows as lines of text: server-sent events, JSON lines, CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

import orjson
import pyarrow as pa

from mavstream_protocol.tuples import encode_lines, rows_of


def encode_events(batch: pa.RecordBatch, offset: int) -> bytes:
    """Return an event per row, whose id is the row's offset: browsers name the last one to continue."""
    lines = encode_lines(batch).splitlines()
    return b"".join(b"id: %d\ndata: %b\n\n" % (offset + place, line) for place, line in enumerate(lines))


def event(kind: str, message: Mapping[str, Any]) -> bytes:
    """Return an event of another kind than a row."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(message))


def encode_csv(batch: pa.RecordBatch, _: int) -> bytes:
    """Return a line of CSV per row."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_cells, rows_of(batch)))
    return text.getvalue().encode()


def csv_header(names: Sequence[str]) -> bytes:
    """Return the first line of CSV."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue().encode()


def _cells(row: Mapping[str, Any]) -> list[Any]:
    return [{True: "true", False: "false"}[one] if isinstance(one, bool) else one for one in row.values()]


def encode_json_lines(batch: pa.RecordBatch, _: int) -> bytes:
    """Return a JSON object per row, each in its line."""
    return encode_lines(batch)
