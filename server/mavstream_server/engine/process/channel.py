"""The control channel: numbered, length-prefixed pickles over a Unix socket pair, and the engine's end of it.

The number precedes the pickle, so that a command that cannot be unpickled can still be answered. Pickles are
safe here because both ends are part of this program and the socket pair has no name to connect to.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from mavstream_protocol.errors import MavstreamError

HEADER = struct.Struct("<IQ")  # length of the pickle in bytes, number of the command
MOST_BYTES = 64 << 20
"""The maximum length of a pickle: a longer one means that the channel is out of sync."""
EVENT = 0
"""The number of events, which answer no command."""
_PIECE = 1 << 18  # bytes read at once


class MalformedMessage(MavstreamError):
    """A message that cannot be encoded or decoded."""

    code = "malformed_message"


class Packet(NamedTuple):
    """An encoded message and its number."""

    number: int
    body: bytes

    def message(self) -> Any:
        """Unpickle the message; raises MalformedMessage."""
        try:
            return pickle.loads(self.body)
        except Exception as error:
            raise MalformedMessage(
                f"message {self.number} of {len(self.body)} bytes cannot be read "
                f"({type(error).__name__}: {error}); both ends must be of the same release"
            ) from error


def encode(number: int, message: object) -> bytes:
    """Return a message with its header; raises MalformedMessage if it cannot be pickled or is too long."""
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
    """Return the length and number of a packet; raises MalformedMessage if it is too long."""
    length, number = HEADER.unpack_from(data)
    if length > MOST_BYTES:
        raise MalformedMessage(
            f"a message of {length} bytes was announced, at most {MOST_BYTES} are sent: "
            "the channel is broken, open a new one"
        )
    return length, number


class Packets:
    """Splits the bytes of a socket into packets."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Add received bytes and yield the packets that are complete; raises MalformedMessage."""
        self._data += data
        offset = 0
        try:
            while len(self._data) - offset >= HEADER.size:
                length, number = parse_header(self._data[offset : offset + HEADER.size])
                stop = offset + HEADER.size + length
                if len(self._data) < stop:
                    return
                body = bytes(self._data[offset + HEADER.size : stop])
                offset = stop
                yield Packet(number, body)
        finally:
            del self._data[:offset]


class EngineEnd:
    """The engine's end of the channel. It never blocks: unsent bytes are buffered and sent later."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._packets = Packets()
        self._unsent = bytearray()
        self.received: deque[Packet] = deque()
        """The received packets that were not processed yet, in order."""
        self.closed = False
        """Whether the other side has closed the channel."""

    def fileno(self) -> int:
        """Return the file descriptor, for polling."""
        return self._socket.fileno()

    @property
    def backed_up(self) -> bool:
        """Whether bytes are buffered; poll for writing, then call `flush`."""
        return bool(self._unsent)

    def receive(self) -> None:
        """Read all available packets into `received`; sets `closed` if the other side has closed."""
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
        """Send a message, or buffer what the socket does not accept; raises MalformedMessage."""
        self._unsent += encode(number, message)
        self.flush()

    def flush(self) -> None:
        """Send as many buffered bytes as the socket accepts."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except ConnectionError:
            self.closed = True
            self._unsent.clear()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
