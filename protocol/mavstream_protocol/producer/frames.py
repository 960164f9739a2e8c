"""Frames: rows of one stream that travel under one sequence number, and their encoding.

The payload is encoded once; the header, which has the sequence number, is put ahead of it when the frame is
sent. So a frame gets another number at no cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import pyarrow as pa

from mavstream_protocol.tuples import encode_columns, encode_message, encode_rows
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import Format

_HEADER_BYTES = 96
"""Bytes of a message besides its payload and the name of its stream, at most."""


class EncodedBatch(NamedTuple):
    """A record batch with its encoding."""

    batch: pa.RecordBatch
    payload: bytes

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.batch.num_rows)


class Frame(NamedTuple):
    """Rows that share a sequence number, stored until they are acknowledged."""

    rows: int
    size: int
    """Bytes on the wire, which count against credit."""
    payload: bytes | None
    """The encoded rows; None if they were sent in a multi-stream message."""
    batch: pa.RecordBatch | None = None
    """A batch that contains the rows, possibly among others; None if only the payload is stored."""
    first: int = 0
    """Index in the batch of the first row."""
    source_row: int = 0
    """Rows of the producer's source ahead of the first row."""

    @property
    def own_rows(self) -> pa.RecordBatch:
        """The rows of this frame alone, as a slice that is made on demand because it is rarely needed."""
        assert self.batch is not None
        return self.batch.slice(self.first, self.rows)


def encode_batch(
    batch: pa.RecordBatch, max_bytes: int, form: Format = Format.ARROW
) -> Iterator[EncodedBatch]:
    """Encode a batch in canonical form, cut into parts of at most `max_bytes` or of one row."""
    if batch.num_rows == 0:
        return
    payload = _encode(batch, form)
    if len(payload) <= max_bytes or batch.num_rows == 1:
        yield EncodedBatch(batch, payload)
        return
    # Rows differ in size, so each piece is checked again; usually the first split is enough.
    step = max(1, min(batch.num_rows - 1, batch.num_rows * max_bytes // (len(payload) + 1)))
    for start in range(0, batch.num_rows, step):
        yield from encode_batch(batch.slice(start, step), max_bytes, form)


def make_frames(
    stream: str,
    batch: pa.RecordBatch,
    max_bytes: int,
    form: Format = Format.ARROW,
    *,
    source_row: int = 0,
    keep_rows: bool = False,
) -> Iterator[Frame]:
    """Encode a batch as frames whose messages have at most `max_bytes`, or one row.

    With `keep_rows` the frames store their rows in addition to the payload, so that some can be removed
    later.
    """
    room = _HEADER_BYTES + len(stream)
    for part in encode_batch(batch, max_bytes - room, form):
        kept = part.batch if keep_rows else None
        yield Frame(part.rows, len(part.payload) + room, part.payload, kept, 0, source_row)


def frame_message(stream: str, sequence: int, frame: Frame, form: Format = Format.ARROW) -> bytes | str:
    """Return the message of a frame: bytes for a binary message (Arrow), text for JSON."""
    assert frame.payload is not None
    # Formatted by hand, since this is done for every frame; names need no escapes.
    if form is Format.ARROW:
        return seal(b'{"stream":"%b","sequence":%d}' % (stream.encode(), sequence), frame.payload)
    head = f'{{"type":"data","stream":"{stream}","sequence":{sequence},"{form.value}":'
    return head + frame.payload.decode() + "}"


def single_frame(stream: str, frame: Frame) -> Frame:
    """Return a frame that can be sent in a message of its own, if it belonged to a multi-stream message."""
    if frame.payload is not None:
        return frame
    payload = encode_message(frame.own_rows)
    return frame._replace(size=len(payload) + _HEADER_BYTES + len(stream), payload=payload)


def without_rows(
    stream: str, frame: Frame, rows: Collection[int], form: Format = Format.ARROW
) -> Frame | None:
    """Return a frame without the rows at some indexes; None if no row is left or rows were not stored."""
    left = [row for row in range(frame.rows) if row not in rows]
    if not left or frame.batch is None:
        return None
    batch = frame.own_rows.take(pa.array(left))
    payload = _encode(batch, form)
    size = len(payload) + _HEADER_BYTES + len(stream)
    return Frame(len(left), size, payload, batch, 0, frame.source_row)


def _encode(batch: pa.RecordBatch, form: Format) -> bytes:
    match form:
        case Format.ARROW:
            return encode_message(batch)
        case Format.COLUMNS:
            return encode_columns(batch)
        case Format.ROWS:
            return encode_rows(batch)
