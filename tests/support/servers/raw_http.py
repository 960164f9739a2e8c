"""HTTP as bytes on a socket, for requests that no HTTP library would send."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers.running_server import PATIENCE, RunningServer


def connected(server: RunningServer) -> socket.socket:
    """Return a TCP connection to a server."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), PATIENCE)


UPGRADE = (
    b"GET /v1/feed HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def upgraded(server: RunningServer) -> socket.socket:
    """Return a connection that became a producer's websocket, from which nobody reads."""
    connection = connected(server)
    connection.sendall(UPGRADE)
    assert connection.recv(4096).startswith(b"HTTP/1.1 101")
    hello = b'{"type": "hello", "producer": "raw"}'
    connection.sendall(bytes((0x81, 0x80 | len(hello))) + bytes(4) + hello)
    return connection


def exchange(server: RunningServer, request: bytes) -> tuple[int, dict[str, Any]]:
    """Send bytes; return the status and the JSON body of the answer."""
    with connected(server) as connection:
        connection.sendall(request)
        return answer_of(connection)


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Read one answer: its status and its JSON body."""
    with connection.makefile("rb") as reader:
        status = int(reader.readline().split()[1])
        length = 0
        while line := reader.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        body = reader.read(length)
    return status, json.loads(body) if body else {}


def is_closed(connection: socket.socket) -> bool:
    """Read until the server closes the connection; False if it does not in time."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
