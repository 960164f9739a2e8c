"""Rows of JSON lines for a stream, chunk by chunk."""

from __future__ import annotations

import pyarrow as pa

from mavstream_protocol.errors import InvalidTuples
from mavstream_protocol.row_files.reading import BadRow, Reading
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_lines


class JsonRows:
    """Parses lines of JSON objects to rows of a stream."""

    def __init__(self, schema: Schema, reading: Reading) -> None:
        self._schema = schema
        self._reading = reading

    def parse(self, content: bytes, first_line: int) -> pa.RecordBatch:
        """Return the rows of complete lines that can be read, as a canonical batch."""
        try:
            return decode_lines(self._schema, content)
        except InvalidTuples:
            return self._one_by_one(content, first_line)

    def _one_by_one(self, content: bytes, first_line: int) -> pa.RecordBatch:
        good: list[pa.RecordBatch] = []
        for line, text in enumerate(content.split(b"\n"), first_line):
            try:
                good.append(decode_lines(self._schema, text))
            except InvalidTuples as error:
                item = error.items[0]
                column = item.pointer.rpartition("/")[2] if item.code != "invalid_json" else None
                value = text.decode(errors="replace")
                self._reading.bad_rows.add(BadRow(line, column, value, f"({item.detail})"))
        filled = [one for one in good if one.num_rows]
        return pa.concat_batches(filled) if filled else decode_lines(self._schema, b"")
