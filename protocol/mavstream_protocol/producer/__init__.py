"""The producer's side of the feed protocol, without I/O and without a clock.

`SendWindow` keeps a stream's frames until they are acknowledged, `ProducerState` drives a producer's windows
by the messages of the server, and `frames` encodes what is sent. The SDK and the feeder bring the websocket.
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
