"""The state of a producer: the send windows of its streams, driven by the messages of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import orjson

from mavstream_protocol.errors import InvalidObject, MavstreamError, Problem, ProblemItem
from mavstream_protocol.names import read_name
from mavstream_protocol.producer.frames import Frame, frame_message
from mavstream_protocol.producer.send_window import SendWindow
from mavstream_protocol.wire.feed import Ack, Acks, End, Ended, Format, Hello, Reject, Welcome, to_producer

_ACK = b'{"type":"ack",'
_ACKS = b'{"type":"acks",'

_TRANSIENT = frozenset({429, 503, 507})
"""Statuses that pass by themselves: over quota, not ready, disk full."""
_NOT_FOUND = 404


class UnexpectedMessage(MavstreamError):
    """The server sent something that is not a message of the feed, or not one for this moment."""

    code = "unexpected_message"


class RefusalKind(Enum):
    """What a refusal means for the rows of a frame."""

    TRANSIENT = "transient"
    """Not now: the same frame is to be sent again."""
    PERMANENT = "permanent"
    """The same frame would be refused again."""
    STREAM_GONE = "stream gone"
    """There is no such stream any more."""
    END = "end"
    """The end of the stream's rows was refused."""


class Refusal(NamedTuple):
    """A frame, stream or end that the server did not accept."""

    kind: RefusalKind
    window: SendWindow
    problem: Problem
    frame: Frame | None = None
    """The refused frame, the next one of its window; None if the stream or its end was refused."""


class Received(NamedTuple):
    """The result of processing a message from the server."""

    sendable: bool
    """Whether there may be something to send because of it."""
    refusal: Refusal | None = None


_NOTHING_TO_DO = Received(sendable=False)
_SENDABLE = Received(sendable=True)


class ProducerState:
    """Send windows by stream: processes the server's messages and yields messages to send, without I/O."""

    def __init__(self, producer: str, form: Format = Format.ARROW) -> None:
        """Start without windows; raises InvalidObject for a producer name that is no identifier."""
        try:
            self.producer = read_name(producer)
        except ValueError as error:
            item = ProblemItem(pointer="producer", code="name", detail=str(error))
            raise InvalidObject([item]) from None
        self.windows: dict[str, SendWindow] = {}
        self.form = form
        self.max_frame_bytes = 1 << 20
        """The longest message in bytes that the server accepts."""

    def hello(self, *, multi_stream: bool = False) -> str:
        """Return the first message of a connection; `multi_stream` announces multi-stream messages."""
        hello = Hello(producer=self.producer, streams=tuple(self.windows), bundles=multi_stream)
        return hello.model_dump_json()

    def read_welcome(self, message: bytes | str) -> Welcome:
        """Return the answer to `hello`, which each window needs to `resume`. Raises UnexpectedMessage."""
        welcome = _read(message)
        if not isinstance(welcome, Welcome):
            raise UnexpectedMessage(f"expected 'welcome' from the server, got '{welcome.type}'")
        self.max_frame_bytes = welcome.max_frame_bytes
        return welcome

    def receive(self, message: bytes | str) -> Received:
        """Process a message from the server. Raises UnexpectedMessage."""
        # Acks are as many as frames; validating them would cost more than all the rest.
        if (acks := _read_acks(message)) is not None:
            return self._acked(acks)
        match _read(message):
            case Ack(stream=stream, sequence=sequence, credit=credit):
                return self._acked({stream: (sequence, credit)})
            case Acks(streams=streams):
                return self._acked(streams)
            case Reject() as reject:
                return self._rejected(reject)
            case Ended(stream=stream):
                if stream in self.windows:
                    self.windows[stream].end_settled(confirmed=True)
                return _SENDABLE
            case Welcome():
                raise UnexpectedMessage("the server said 'welcome' twice on one connection")

    def outgoing(self, window: SendWindow) -> Iterator[bytes | str]:
        """Yield the messages that a window may send now: frames as far as credit allows, then the end.

        A message counts as sent when it is yielded.
        """
        while (due := window.next_frame()) is not None:
            yield frame_message(window.stream, *due, self.form)
        if window.end_due():
            yield End(stream=window.stream).model_dump_json()

    def _acked(self, streams: Mapping[str, tuple[int, int]]) -> Received:
        windows = self.windows
        sendable = False
        for stream, (sequence, credit) in streams.items():
            # A removed stream no longer has a window.
            if (window := windows.get(stream)) is not None:
                window.ack(sequence, credit)
                sendable |= window.waiting or window.ending
        return _SENDABLE if sendable else _NOTHING_TO_DO

    def _rejected(self, reject: Reject) -> Received:
        window, problem = self.windows.get(reject.stream), reject.problem
        if window is None:
            return _NOTHING_TO_DO
        if problem.status == _NOT_FOUND:
            return Received(sendable=False, refusal=Refusal(RefusalKind.STREAM_GONE, window, problem))
        if reject.sequence == 0:
            window.end_settled(confirmed=False)
            return Received(sendable=True, refusal=Refusal(RefusalKind.END, window, problem))
        try:
            frame = window.take_back(reject.sequence, reject.expected)
        except ValueError as error:
            raise UnexpectedMessage(str(error)) from None
        if frame is None:
            return _NOTHING_TO_DO
        kind = RefusalKind.TRANSIENT if problem.status in _TRANSIENT else RefusalKind.PERMANENT
        return Received(sendable=True, refusal=Refusal(kind, window, problem, frame))


def _read_acks(message: bytes | str) -> Mapping[str, tuple[int, int]] | None:
    """Return sequence number and credit by stream, from acks as servers write them; None for the rest."""
    if not isinstance(message, bytes) or not message.startswith((_ACKS, _ACK)):
        return None
    try:
        data = orjson.loads(message)
        acks: Mapping[str, tuple[int, int]]
        if message.startswith(_ACKS):
            acks = data["streams"]
        else:
            acks = {data["stream"]: (data["sequence"], data["credit"])}
    except (ValueError, KeyError):
        return None
    return acks


def _read(message: bytes | str) -> Welcome | Ack | Acks | Reject | Ended:
    try:
        return to_producer.validate_json(message)
    except ValueError:
        raise UnexpectedMessage(f"expected a message of the feed, got {message[:100]!r}") from None
