"""When a message came: noted as its bytes are read, ahead of whatever else the event loop has to do first."""

from __future__ import annotations

import time
from typing import Any

from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_CAME = "mavstream.came"


class StampedWebSocket(WebSocketsSansIOProtocol):
    """A websocket that tells the application when it last read.

    uvicorn reads no further until the application has taken the messages that are there, so the last time of
    reading is that of the message at hand.
    """

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and note when they came."""
        came = time.time_ns()
        super().data_received(data)
        scope: Any = getattr(self, "scope", None)  # there is none before the handshake
        if scope is not None:
            scope["state"][_CAME] = came


def came(websocket: WebSocket) -> int:
    """Return when the message at hand came, UTC in ns; 0 under a server that does not tell."""
    found: int = websocket.scope.get("state", {}).get(_CAME, 0)
    return found
