"""A producer that sends protocol messages one by one, for attacks that look at every answer."""

from __future__ import annotations

import json
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from attack.target.server import PATIENCE, TargetServer


def websocket(server: TargetServer, path: str, token: str) -> ClientConnection:
    """Return an open websocket."""
    url = server.websocket_url + path
    opened: ClientConnection = connect(
        url, additional_headers=server.header(token), compression=None, max_size=None, open_timeout=PATIENCE
    )
    return opened


def close_code(socket: ClientConnection) -> int:
    """Read until the server closes the websocket; returns the code, 1006 without one."""
    try:
        while True:
            socket.recv(timeout=PATIENCE)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else 1006


class Producer:
    """A connected producer of one stream."""

    def __init__(self, server: TargetServer, name: str, stream: str, token: str = "feeder") -> None:
        self.socket = websocket(server, "/v1/feed", token)
        self.stream = stream
        self._send(type="hello", producer=name, streams=[stream])
        welcome = self.receive()
        self.last: int = welcome["streams"].get(stream, {}).get("last_sequence", 0)
        """The last sequence that is in the log."""

    def rows(self, sequence: int, rows: list[dict[str, Any]]) -> None:
        """Send a frame."""
        self._send(type="data", stream=self.stream, sequence=sequence, rows=rows)

    def receive(self) -> dict[str, Any]:
        """Return the next message of the server."""
        received: dict[str, Any] = json.loads(self.socket.recv(timeout=PATIENCE))
        return received

    def append(self, sequence: int, rows: list[dict[str, Any]]) -> None:
        """Send a frame and wait for its ack; another answer is an error."""
        self.rows(sequence, rows)
        received = self.receive()
        if received["type"] != "ack":
            raise RuntimeError(f"a frame was not acked: {received}")

    def _send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
