"""Bundles: frames of one moment for several streams, sent as one message.

At a thousand moments a second it is the message that costs, not the rows: one for thirty streams takes
little more than one for a single stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from mavstream_feeder.sending.lane import Lane
from mavstream_protocol.tuples import encode_message
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import share

MOST_ROWS = 256
"""Rows of a frame that is worth bundling; a larger one has its message for itself."""


Piece: TypeAlias = tuple[Lane, int, int]
"""A lane whose next frame is to be made, with how many rows, and how many of the source are ahead of them."""


def bundle(rows: pa.RecordBatch, pieces: Sequence[Piece], most_bytes: int) -> bytes | None:
    """Return the message of rows that are cut into pieces, one a lane, whose frames are then under way.

    None if it would be too long, or more than one of the lanes has credit for: nothing is under way then.
    """
    # By hand: this is said for every frame, and names need no escapes.
    said = ",".join([f'["{lane.stream}",{lane.next_sequence},{count}]' for lane, count, _ in pieces])
    message = seal(b'{"frames":[%b]}' % said.encode(), encode_message(rows))
    nbytes, total = len(message), rows.num_rows
    if nbytes > most_bytes:
        return None
    sizes = [share(nbytes, count, total) for _, count, _ in pieces]
    if not all(lane.fits(size) for (lane, _, _), size in zip(pieces, sizes, strict=True)):
        return None
    begin = 0
    for (lane, count, place), size in zip(pieces, sizes, strict=True):
        lane.left(size, rows, begin, count, place)
        begin += count
    return message
