"""Arrivals on websockets: their times, taken when bytes are read from the socket, and who wants to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mavstream_server.core.clock import SystemClock

_RECEIVED = "mavstream.received"
_LISTENER = "mavstream.arrival_listener"


class StampedWebSocket(WebSocketsSansIOProtocol):
    """A websocket protocol that records when it last read from the socket.

    uvicorn does not read on until the application has received the pending messages, so the last read time is
    that of the current message.
    """

    def data_received(self, data: bytes) -> None:
        """Record the time, then handle the bytes."""
        received = SystemClock.monotonic()
        super().data_received(data)
        scope: Any = getattr(self, "scope", None)  # not set before the handshake
        if scope is not None:
            state = scope["state"]
            state[_RECEIVED] = received
            listener = state.get(_LISTENER)
            if listener is not None:
                listener()


def received_at(websocket: WebSocket) -> int:
    """Return the monotonic time (ns) of the current message; 0 under another protocol class."""
    found: int = websocket.scope.get("state", {}).get(_RECEIVED, 0)
    return found


def notify_arrivals(websocket: WebSocket, listener: Callable[[], object]) -> None:
    """Call back whenever bytes were read from the socket, before their messages are received."""
    websocket.scope.setdefault("state", {})[_LISTENER] = listener
