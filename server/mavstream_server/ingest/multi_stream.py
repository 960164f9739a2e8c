"""Multi-stream messages: one message with frames of several streams, split into these frames."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mavstream_protocol.errors import InvalidTuples, ProblemItem
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_batch, read_known
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.columns.column import Column
from mavstream_server.columns.plain import plain_columns
from mavstream_server.ingest.messages import MOST_SEQUENCE, NotUnderstood, address
from mavstream_server.ingest.streams.widening import columns_of, null_columns
from mavstream_server.log.format.shared_columns import RowSlice, SharedColumns

_KEYS = {"frames"}


FrameHeader = tuple[str, int, int]
"""A frame as the header of the message describes it: stream, sequence, rows."""


def frames_of_message(header: dict[str, Any]) -> list[FrameHeader]:
    """Return the frames of a multi-stream message; raises NotUnderstood."""
    listed = header["frames"]
    if header.keys() != _KEYS or not isinstance(listed, list) or not listed:
        raise NotUnderstood(
            "the header of a multi-stream message has 'frames' only, a list of [stream, sequence, rows]"
        )
    frames = []
    for each in listed:
        if not isinstance(each, list) or len(each) != 3:
            raise NotUnderstood(
                f"a frame of a multi-stream message is [stream, sequence, rows], got {each!r:.60}"
            )
        stream, sequence, rows = each
        if type(stream) is not str or type(sequence) is not int or not 0 < sequence <= MOST_SEQUENCE:
            address(stream, sequence)  # raises with the reason
        if type(rows) is not int or rows < 1:
            raise NotUnderstood(f"a frame of a multi-stream message has 1 row or more, got {rows!r:.20}")
        frames.append((stream, sequence, rows))
    return frames


class MessageRows:
    """The rows of a multi-stream message: decoded once; if some are invalid, each frame is decoded alone."""

    def __init__(self, stream: str, schema: Schema, payload: memoryview, total: int) -> None:
        """Read the payload with the schema of a stream, which all streams of the message must share.

        Any of them may have got more nullable fields, of which the producer does not know yet. Raises
        InvalidTuples if the number of rows differs from the header's, or they cannot be read.
        """
        self._stream = stream
        self._batch, schema = read_known(schema, payload)
        self._schema = schema
        if self._batch.num_rows != total:
            detail = (
                f"the frames in the header have {total} rows, the message has {self._batch.num_rows}: "
                "make them equal"
            )
            raise InvalidTuples([ProblemItem(pointer="body", code="wrong_rows", detail=detail)])
        self.shared: SharedColumns | None = None
        """The rows, if all are valid and none has a null."""
        self._columns: dict[str, Column] | None = None
        plain = plain_columns(self._batch, schema)
        if plain is not None:
            self.shared = SharedColumns(schema, plain, total)
            return
        with suppress(InvalidTuples):  # reported by the frames with the invalid rows
            self._columns = columns_from_arrow(decode_batch(schema, self._batch), schema)

    def part(
        self, stream: str, schema: Schema, start: int, size: int, arrival: int
    ) -> Mapping[str, Column] | RowSlice:
        """Return the rows of one frame; raises InvalidTuples, with row numbers of the frame."""
        if schema is not self._schema and not schema.extends(self._schema):
            detail = (
                f"stream '{stream}' has other fields than '{self._stream}', the first stream of the message: "
                "send its rows in a message of their own"
            )
            raise InvalidTuples([ProblemItem(pointer="body", code="another_schema", detail=detail)])
        added = schema.fields[len(self._schema) :]
        if self.shared is not None:
            rows = RowSlice(self.shared, start, size, arrival)
            if not added:
                return rows
            columns = columns_of([rows])
        elif self._columns is not None:
            columns = {name: column.slice(start, start + size) for name, column in self._columns.items()}
        else:
            frame = decode_batch(self._schema, self._batch.slice(start, size))
            columns = columns_from_arrow(frame, self._schema)
        return {**columns, **null_columns(added, size)}
