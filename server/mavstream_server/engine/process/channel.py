"""The control channel: numbered, length-prefixed pickles over a Unix socket pair, and the engine's end of it.

The number stands in front of the pickle, so that a command which cannot be read can still be answered.
Pickles are safe here because both ends are ours and the pair has no name that others could reach.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from mavstream_protocol.errors import MavstreamError

HEADER = struct.Struct("<IQ")  # bytes of the pickle, number of the command
MOST_BYTES = 64 << 20
"""No pickle is longer: a longer one says that the ends have lost each other."""
EVENT = 0
"""The number of what answers no command."""
_PIECE = 1 << 18


class MalformedMessage(MavstreamError):
    """Bytes that are no message of this program."""

    code = "malformed_message"


class Packet(NamedTuple):
    """A message as it travels."""

    number: int
    body: bytes

    def message(self) -> Any:
        """Unpickle it; raises MalformedMessage."""
        try:
            return pickle.loads(self.body)
        except Exception as error:
            raise MalformedMessage(
                f"message {self.number} of {len(self.body)} bytes cannot be read "
                f"({type(error).__name__}: {error}); both ends must be of the same release"
            ) from error


def encode(number: int, message: object) -> bytes:
    """Return a message as it travels; raises MalformedMessage if it cannot."""
    try:
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise MalformedMessage(
            f"a {type(message).__name__} cannot be sent ({type(error).__name__}: {error})"
        ) from error
    if len(body) > MOST_BYTES:
        raise MalformedMessage(
            f"a {type(message).__name__} of {len(body)} bytes cannot be sent; at most {MOST_BYTES} can"
        )
    return HEADER.pack(len(body), number) + body


def parse_header(data: bytes | bytearray) -> tuple[int, int]:
    """Return length and number of a packet; raises MalformedMessage."""
    length, number = HEADER.unpack_from(data)
    if length > MOST_BYTES:
        raise MalformedMessage(
            f"a message of {length} bytes was announced, at most {MOST_BYTES} are sent: "
            "the channel is broken, open a new one"
        )
    return length, number


class Packets:
    """Cuts what a socket brings into packets."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Take bytes and return the packets that have become whole; raises MalformedMessage."""
        self._data += data
        place = 0
        try:
            while len(self._data) - place >= HEADER.size:
                length, number = parse_header(self._data[place : place + HEADER.size])
                stop = place + HEADER.size + length
                if len(self._data) < stop:
                    return
                body = bytes(self._data[place + HEADER.size : stop])
                place = stop
                yield Packet(number, body)
        finally:
            del self._data[:place]


class EngineEnd:
    """The engine's end: never waits. What the other side does not take yet is kept and sent later."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._packets = Packets()
        self._unsent = bytearray()
        self.received: deque[Packet] = deque()
        """What has come and waits to be dealt with, in order."""
        self.closed = False
        """The other side is gone."""

    def fileno(self) -> int:
        """Return what can be polled."""
        return self._socket.fileno()

    @property
    def backed_up(self) -> bool:
        """Whether the other side has yet to take what was sent; poll for writing, then call `flush`."""
        return bool(self._unsent)

    def receive(self) -> None:
        """Put what has come to `received`; learns whether the other side is gone."""
        try:
            while not self.closed:
                data = self._socket.recv(_PIECE)
                self.closed = not data
                self.received.extend(self._packets.feed(data))
                if len(data) < _PIECE:
                    return
        except BlockingIOError:
            return
        except ConnectionError:
            self.closed = True

    def send(self, number: int, message: object) -> None:
        """Send a message, now or as soon as there is room."""
        self._unsent += encode(number, message)
        self.flush()

    def flush(self) -> None:
        """Send what there is room for."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except ConnectionError:
            self.closed = True
            self._unsent.clear()

    def close(self) -> None:
        """Let the socket go."""
        self._socket.close()
