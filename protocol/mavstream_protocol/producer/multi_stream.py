"""Multi-stream messages: frames of several streams with one schema, sent as one message.

At a thousand messages a second it is the message that costs, not the rows: one for thirty streams takes
little longer than one for a single stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from mavstream_protocol.producer.frames import Frame
from mavstream_protocol.producer.send_window import SendWindow
from mavstream_protocol.tuples import encode_message
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import share

Part: TypeAlias = tuple[SendWindow, int, int]
"""The window of a stream, the number of its rows, and the rows of the source ahead of them."""

# The same as calling `Frame`, in half of the time.
_frame = partial(tuple.__new__, Frame)


def multi_stream_message(rows: pa.RecordBatch, parts: Sequence[Part], max_bytes: int) -> bytes | None:
    """Return a message with a frame for each stream; the frames are then in flight.

    Frames are in the order of the rows. No window may have waiting frames. Returns None without any change if
    the message would be longer than `max_bytes` or a window lacks credit for its share.
    """
    # Formatted by hand, since this is done for every frame; names need no escapes.
    frames = ",".join([f'["{window.stream}",{window.next_sequence},{count}]' for window, count, _ in parts])
    message = seal(b'{"frames":[%b]}' % frames.encode(), encode_message(rows))
    nbytes, total = len(message), rows.num_rows
    if nbytes > max_bytes:
        return None
    sizes = [share(nbytes, count, total) for _, count, _ in parts]
    if not all(window.fits(size) for (window, _, _), size in zip(parts, sizes, strict=True)):
        return None
    first = 0
    for (window, count, source_row), size in zip(parts, sizes, strict=True):
        window.add_in_flight(_frame((count, size, None, rows, first, source_row)))
        first += count
    return message
