"""Arrivals on websockets: their times, taken when bytes are read from the socket, and who wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_ARRIVAL = "mavstream.arrival"
_LISTENER = "mavstream.arrival_listener"


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
            state = scope["state"]
            state[_ARRIVAL] = arrival
            listener = state.get(_LISTENER)
            if listener is not None:
                listener()


def arrival_of(websocket: WebSocket) -> int:
    """Return the arrival time of the current message, UTC in ns; 0 under another protocol class."""
    found: int = websocket.scope.get("state", {}).get(_ARRIVAL, 0)
    return found


def notify_arrivals(websocket: WebSocket, listener: Callable[[], object]) -> None:
    """Call back whenever bytes were read from the socket, before their messages are received."""
    websocket.scope.setdefault("state", {})[_LISTENER] = listener
