"""Pages of rows, encoded piece by piece, so that no step blocks the event loop for long."""

from __future__ import annotations

import orjson
import pyarrow as pa

from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import encode_message, encode_rows, encode_schema
from mavstream_server.results.encoding import ResultFormat

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end-of-stream marker of Arrow IPC."""


class EncodedRows:
    """Rows of one schema, as JSON or as an Arrow IPC stream."""

    def __init__(self, schema: Schema, format_: ResultFormat) -> None:
        self.schema = schema
        self.format = format_
        self.count = 0
        """Number of rows."""
        self._pieces: list[bytes] = []

    def add(self, batch: pa.RecordBatch) -> int:
        """Add rows; returns the bytes that they take."""
        piece = encode_message(batch) if self.format is ResultFormat.ARROW else encode_rows(batch)[1:-1]
        self._pieces.append(piece)
        self.count += batch.num_rows
        return len(piece)

    def json(self, **rest: object) -> bytes:
        """Return a JSON object with the rows under `rows`, and what else is given."""
        return b'{"rows":[' + b",".join(self._pieces) + b"]," + orjson.dumps(rest)[1:]

    def arrow(self) -> bytes:
        """Return an Arrow IPC stream of the rows."""
        return b"".join((encode_schema(self.schema), *self._pieces, _END_OF_STREAM))
