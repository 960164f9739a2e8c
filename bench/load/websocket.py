"""A blocking websocket client for load generators: messages are encoded before the clock starts.

Frames of a websocket client are masked, which costs a pass over the data. `encode` does it beforehand, so
that sending a message is a single system call with bytes that exist already.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

_RECEIVED_AT_ONCE = 1 << 18
_PATIENCE = 60.0


def encode(message: str | bytes) -> bytes:
    """Return a message as it travels."""
    if isinstance(message, str):
        return Frame(Opcode.TEXT, message.encode()).serialize(mask=True)
    return Frame(Opcode.BINARY, message).serialize(mask=True)


class Websocket:
    """An open connection. It is read when its caller waits; nothing runs in the background."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._protocol = ClientProtocol(parse_uri(url), max_size=None)
        self._socket = socket.create_connection((address.hostname or "", address.port or 80), _PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        self._early: list[str | bytes] = []
        while self._protocol.state is State.CONNECTING:
            self._early += self._received()
        if self._protocol.handshake_exc is not None:
            raise self._protocol.handshake_exc

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, encoded: bytes) -> None:
        """Send an encoded message; blocks while the connection takes no more."""
        self._socket.sendall(encoded)

    def receive(self) -> list[str | bytes]:
        """Return the messages that the readable connection has; blocks if it is not readable."""
        early, self._early = self._early, []
        return early or self._received()

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to receive, for this long at most; returns whether there is."""
        return bool(self._early) or bool(select.select([self], [], [], max(seconds, 0.0))[0])

    def close(self) -> None:
        """Close the connection without a farewell."""
        self._socket.close()

    def _received(self) -> list[str | bytes]:
        data = self._socket.recv(_RECEIVED_AT_ONCE)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._flush()
        messages = list(self._messages())
        if not data and not messages:
            reason = self._protocol.close_reason
            raise ConnectionError(f"the server closed the connection: {reason or 'no reason given'}")
        return messages

    def _messages(self) -> Iterator[str | bytes]:
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode is Opcode.TEXT:
                    yield bytes(event.data).decode()
                elif event.opcode is Opcode.BINARY:
                    yield bytes(event.data)
                elif event.opcode is Opcode.CONT or not event.fin:
                    raise RuntimeError("a message arrived in several frames, which this client does not join")

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)
