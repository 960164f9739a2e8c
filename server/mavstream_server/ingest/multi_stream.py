"""Bundles: one message with the rows of frames for several streams, taken apart into these frames."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mavstream_protocol.errors import InvalidTuples, ProblemItem
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_batch, read_message
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.columns.column import Column
from mavstream_server.columns.plain import plain_columns
from mavstream_server.ingest.messages import MOST_SEQUENCE, NotUnderstood, address
from mavstream_server.log.format.shared_columns import RowSlice, SharedColumns

_KEYS = {"frames"}


Bundled = tuple[str, int, int]
"""A frame of a bundle, as its header says: stream, sequence, rows."""


def frames_of_message(header: dict[str, Any]) -> list[Bundled]:
    """Return the frames of a bundle; raises NotUnderstood."""
    said = header["frames"]
    if header.keys() != _KEYS or not isinstance(said, list) or not said:
        raise NotUnderstood("the header of a bundle has 'frames' only, a list of [stream, sequence, rows]")
    frames = []
    for each in said:
        if not isinstance(each, list) or len(each) != 3:
            raise NotUnderstood(f"a frame of a bundle is [stream, sequence, rows], {each!r:.60} came")
        stream, sequence, rows = each
        if type(stream) is not str or type(sequence) is not int or not 0 < sequence <= MOST_SEQUENCE:
            address(stream, sequence)  # tells what is wrong
        if type(rows) is not int or rows < 1:
            raise NotUnderstood(f"a frame of a bundle has 1 row or more, {rows!r:.20} came")
        frames.append((stream, sequence, rows))
    return frames


class MessageRows:
    """The rows of a bundle. As a whole they are decoded once; if some are bad, each frame is judged alone."""

    def __init__(self, stream: str, schema: Schema, payload: memoryview, total: int) -> None:
        """Of a stream with this schema, as all others should be.

        Raises InvalidTuples if there are not as many rows as the header says, or they cannot be read.
        """
        self._stream = stream
        self._schema = schema
        self._batch = read_message(schema, payload)
        if self._batch.num_rows != total:
            detail = f"the frames of the bundle say {total} rows and {self._batch.num_rows} came: count again"
            raise InvalidTuples([ProblemItem(pointer="body", code="wrong_rows", detail=detail)])
        self.pack: SharedColumns | None = None
        """The rows, if they are all right and none has a null."""
        self._columns: dict[str, Column] | None = None
        plain = plain_columns(self._batch, schema)
        if plain is not None:
            self.pack = SharedColumns(schema, plain, total)
            return
        with suppress(InvalidTuples):  # told to the frames whose rows they are
            self._columns = columns_from_arrow(decode_batch(schema, self._batch), schema)

    def part(
        self, stream: str, schema: Schema, start: int, size: int, arrival: int
    ) -> Mapping[str, Column] | RowSlice:
        """Return the rows of a frame that came now; raises InvalidTuples, with the frame's row numbers."""
        if schema is not self._schema and schema != self._schema:
            detail = (
                f"stream '{stream}' has other fields than '{self._stream}', with which the bundle begins: "
                "send its rows in a message of their own"
            )
            raise InvalidTuples([ProblemItem(pointer="body", code="another_schema", detail=detail)])
        if self.pack is not None:
            return RowSlice(self.pack, start, size, arrival)
        if self._columns is not None:
            return {name: column.slice(start, start + size) for name, column in self._columns.items()}
        frame = decode_batch(schema, self._batch.slice(start, size))
        return columns_from_arrow(frame, schema)
