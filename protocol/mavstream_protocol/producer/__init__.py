"""The producer's side of the feed protocol, without I/O and without a clock.

`SendWindow` stores a stream's frames until they are acknowledged, `ProducerState` updates a producer's
windows from the server's messages, and `frames` encodes rows. The SDK and the feeder provide the websocket.
"""

from mavstream_protocol.producer.frames import EncodedBatch, Frame, encode_batch, frame_message, make_frames
from mavstream_protocol.producer.multi_stream import Part, multi_stream_message
from mavstream_protocol.producer.send_window import Resumed, SendWindow
from mavstream_protocol.producer.state import ProducerState, Received, Refusal, RefusalKind, UnexpectedMessage

__all__ = [
    "EncodedBatch",
    "Frame",
    "Part",
    "ProducerState",
    "Received",
    "Refusal",
    "RefusalKind",
    "Resumed",
    "SendWindow",
    "UnexpectedMessage",
    "encode_batch",
    "frame_message",
    "make_frames",
    "multi_stream_message",
]
