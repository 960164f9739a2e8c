"""Frames: a batch of rows as one message of the feed, in the format of the producer's choice."""

from __future__ import annotations

from typing import NamedTuple

import orjson
import pyarrow as pa

from mavstream_protocol.tuples import encode_columns, encode_message, encode_rows
from mavstream_protocol.wire.envelope import seal, unseal
from mavstream_protocol.wire.feed import Format


class Frame(NamedTuple):
    """A numbered message, or its part of one, that is kept until it is acked."""

    stream: str
    sequence: int
    rows: int
    message: bytes | str | None
    """Bytes are a binary message, a string is text; None is a part of a bundle."""
    size: int
    """Bytes on the wire, which credit counts."""
    batch: pa.RecordBatch | None = None
    """The rows, from which the frame can be made again without some of them; others may be with them."""
    place: int = 0
    """Rows of the source ahead of its first one."""
    begin: int = 0
    """Where in the batch its own rows begin."""

    @property
    def own(self) -> pa.RecordBatch:
        """Its own rows, cut out when they are asked for: of most frames they never are."""
        assert self.batch is not None
        return self.batch.slice(self.begin, self.rows)


def make_frame(stream: str, sequence: int, batch: pa.RecordBatch, form: Format, place: int = 0) -> Frame:
    """Return the frame of a batch in canonical form."""
    if form is Format.ARROW:
        # By hand: this is said for every frame, and names need no escapes.
        header = b'{"stream":"%b","sequence":%d}' % (stream.encode(), sequence)
        message = seal(header, encode_message(batch))
        return Frame(stream, sequence, batch.num_rows, message, len(message), batch, place)
    # The tuples are JSON already, so they are put into the text as they are.
    part = encode_columns(batch) if form is Format.COLUMNS else encode_rows(batch)
    head = orjson.dumps({"type": "data", "stream": stream, "sequence": sequence})
    whole = head[:-1] + b',"' + form.value.encode() + b'":' + part + b"}"
    return Frame(stream, sequence, batch.num_rows, whole.decode(), len(whole), batch, place)


def alone(frame: Frame) -> Frame:
    """Return a frame that travels in a message of its own, whatever it travelled in before."""
    if frame.message is not None:
        return frame
    return make_frame(frame.stream, frame.sequence, frame.own, Format.ARROW, frame.place)


def renumbered(frame: Frame, sequence: int) -> Frame:
    """Return the same rows under another number."""
    if frame.message is None:
        return frame._replace(sequence=sequence)
    if isinstance(frame.message, bytes):
        _, payload = unseal(frame.message)
        header = orjson.dumps({"stream": frame.stream, "sequence": sequence})
        message: bytes | str = seal(header, bytes(payload))
    else:
        # The head comes first, so the first number of this name is the frame's own.
        message = frame.message.replace(f'"sequence":{frame.sequence}', f'"sequence":{sequence}', 1)
    return frame._replace(sequence=sequence, message=message, size=len(message))


def without_rows(frame: Frame, rows: set[int], form: Format) -> Frame | None:
    """Return a frame without some of its rows, under the same number; None if no row is left."""
    left = [row for row in range(frame.rows) if row not in rows]
    if not left or frame.batch is None:
        return None
    return make_frame(frame.stream, frame.sequence, frame.own.take(pa.array(left)), form, frame.place)
