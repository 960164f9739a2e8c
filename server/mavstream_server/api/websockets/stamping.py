"""Arrival times of websocket messages, taken when their bytes are read from the socket."""

from __future__ import annotations

import time
from typing import Any

from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_ARRIVAL = "mavstream.arrival"


class StampedWebSocket(WebSocketsSansIOProtocol):
    """A websocket protocol that records when it last read from the socket.

    uvicorn does not read on until the application has received the pending messages, so the last read time is
    that of the current message.
    """

    def data_received(self, data: bytes) -> None:
        """Record the time, then handle the bytes."""
        arrival = time.time_ns()
        super().data_received(data)
        scope: Any = getattr(self, "scope", None)  # not set before the handshake
        if scope is not None:
            scope["state"][_ARRIVAL] = arrival


def arrival_of(websocket: WebSocket) -> int:
    """Return the arrival time of the current message, UTC in ns; 0 under another protocol class."""
    found: int = websocket.scope.get("state", {}).get(_ARRIVAL, 0)
    return found
