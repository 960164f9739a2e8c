"""Frames: a batch of rows as one message of the feed, in the format of the producer's choice."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import pyarrow as pa

from mavstream_protocol.tuples import encode_columns, encode_message, encode_rows
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import Format


@dataclass(frozen=True, slots=True)
class Frame:
    """A numbered message that is kept until it is acked."""

    stream: str
    sequence: int
    rows: int
    message: bytes | str
    """Bytes are a binary message, a string is text."""
    size: int
    """Bytes on the wire, which credit counts."""


def make_frame(stream: str, sequence: int, batch: pa.RecordBatch, form: Format) -> Frame:
    """Return the frame of a batch in canonical form."""
    if form is Format.ARROW:
        header = orjson.dumps({"stream": stream, "sequence": sequence})
        message = seal(header, encode_message(batch))
        return Frame(stream, sequence, batch.num_rows, message, len(message))
    # The tuples are JSON already, so they are put into the text as they are.
    part = encode_columns(batch) if form is Format.COLUMNS else encode_rows(batch)
    head = orjson.dumps({"type": "data", "stream": stream, "sequence": sequence})
    whole = head[:-1] + b',"' + form.value.encode() + b'":' + part + b"}"
    return Frame(stream, sequence, batch.num_rows, whole.decode(), len(whole))
