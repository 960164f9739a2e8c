"""HTTP as bytes on a socket, for requests that no HTTP library would send."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httptools

from attack.target.server import PATIENCE, TargetServer

_READ = 1 << 16


class Answer:
    """Reads one answer; implements the callbacks of the parser."""

    def __init__(self, head_only: bool = False) -> None:
        self._head_only = head_only
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header was read."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head was read; there is no body behind that of a HEAD request."""
        self.complete = self._head_only and self.status >= 200

    def on_message_complete(self) -> None:
        """The answer was read; an answer 100 announces another."""
        self.complete = self.complete or self.status >= 200

    @property
    def status(self) -> int:
        """The status code."""
        found: int = self.parser.get_status_code()
        return found


def connected(server: TargetServer) -> socket.socket:
    """Return a TCP connection to a server."""
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname or "", address.port or 80), PATIENCE)


def exchange(server: TargetServer, request: bytes) -> Answer:
    """Send bytes and read the answer, which may be incomplete."""
    with connected(server) as connection:
        connection.sendall(request)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> Answer:
    """Read one answer, which is incomplete if the server closes the connection or upgrades it."""
    answer = Answer()
    try:
        while not answer.complete and (received := connection.recv(_READ)):
            answer.parser.feed_data(received)
    except (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade):
        pass
    return answer
