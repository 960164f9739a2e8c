"""Bundles: frames of one moment for several streams, sent as one message.

At a thousand moments a second it is the message that costs, not the rows: one for thirty streams takes
little more than one for a single stream.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from mavstream_feeder.frames import Frame
from mavstream_feeder.lane import Lane
from mavstream_protocol.tuples import encode_message
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import share

MOST_ROWS = 256
"""Rows of a frame that is worth bundling; a larger one has its message for itself."""


class Piece(NamedTuple):
    """Rows that are to become a lane's next frame."""

    lane: Lane
    rows: pa.RecordBatch
    place: int


def bundle(pieces: list[Piece], most_bytes: int) -> bytes | None:
    """Return the message of pieces with one schema, one a lane, whose frames are then under way.

    None if it would be too long, or more than one of the lanes has credit for: nothing is under way then.
    """
    rows = pa.concat_batches([part for _, part, _ in pieces])
    numbered = [(lane, lane.next_sequence, part.num_rows) for lane, part, _ in pieces]
    # By hand: this is said for every frame, and names need no escapes.
    said = ",".join([f'["{lane.stream}",{sequence},{count}]' for lane, sequence, count in numbered])
    message = seal(b'{"frames":[%b]}' % said.encode(), encode_message(rows))
    nbytes, total = len(message), rows.num_rows
    if nbytes > most_bytes:
        return None
    for lane, _, count in numbered:
        if not lane.fits(share(nbytes, count, total)):
            return None
    for (lane, sequence, count), (_, part, place) in zip(numbered, pieces, strict=True):
        lane.left(Frame(lane.stream, sequence, count, None, share(nbytes, count, total), part, place))
    return message
