"""The websocket protocol: arrival times, who wants to know them, and bounds on what a peer makes it hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from mavstream_server.api.access.open_sockets import OpenSockets, StallTimer
from mavstream_server.api.problems import raw_response
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Refused

_RECEIVED = "mavstream.received"
_LISTENER = "mavstream.arrival_listener"
_MOST_FRAGMENTS = 4096
"""Fragments of a message; empty ones would not count for its size."""
_MOST_CONTROL_FRAMES = 256
"""Pings and pongs in one piece; no client has a use for as many."""
_PIECE = 1 << 16
"""Bytes that are parsed at once: frames of 6 bytes each would take long otherwise."""


class StampedWebSocket(WebSocketsSansIOProtocol):
    """A websocket protocol that records when it last read from the socket.

    uvicorn does not read on until the application has received the pending messages, so the last read time is
    that of the current message.

    A peer that does not read for `send_timeout` seconds is dropped, and so are pongs while it does not read.
    """

    def __init__(
        self, *args: Any, send_timeout: float = 30.0, sockets: OpenSockets | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.sockets = sockets
        self._control_frames = 0
        self._send_timer = StallTimer(self.loop, send_timeout, lambda: self.transport.abort())

    def data_received(self, data: bytes) -> None:
        """Record the time, then handle the bytes."""
        received = SystemClock.monotonic()
        if len(data) <= _PIECE:
            self._parse(data)
        else:
            for start in range(0, len(data), _PIECE):
                self._parse(data[start : start + _PIECE])
        scope: Any = getattr(self, "scope", None)  # not set before the handshake
        if scope is not None:
            state = scope["state"]
            state[_RECEIVED] = received
            listener = state.get(_LISTENER)
            if listener is not None:
                listener()
        elif self.conn.handshake_exc is not None:
            self._refuse_handshake(self.conn.handshake_exc)

    def _parse(self, data: bytes) -> None:
        """Handle some bytes; after a failure they are discarded."""
        if self.conn.parser_exc is None:
            self._control_frames = 0
            super().data_received(data)

    def _refuse_handshake(self, cause: Exception) -> None:
        """Answer a handshake that cannot be parsed, which uvicorn would leave without an answer."""
        self.close_sent = self.handshake_complete = True
        error = Refused(f"the websocket handshake is not understood: {cause}", code="invalid_handshake")
        self.transport.write(raw_response(error))
        self.transport.close()

    async def run_asgi(self) -> None:
        """Run the application; uvicorn logs an error if it refused the handshake with a response."""
        served = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await served(scope, receive, send)
            self.handshake_complete |= self.initial_response is not None

        self.app = app
        await super().run_asgi()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Record that only the peer's part of closing is missing."""
        super().on_task_complete(task)
        if self.sockets is not None and not self.disconnected:
            self.sockets.idle(self.transport)

    def handle_ping(self) -> None:
        """Answer a ping; while the peer does not read, answers would only pile up."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()
        self._count_control_frame()

    def handle_pong(self, event: Frame) -> None:
        """Take note of the answer to a ping."""
        super().handle_pong(event)
        self._count_control_frame()

    def _count_control_frame(self) -> None:
        self._control_frames += 1
        if self._control_frames > _MOST_CONTROL_FRAMES:
            self._fail(CloseCode.POLICY_VIOLATION, f"more than {_MOST_CONTROL_FRAMES} pings or pongs at once")

    def handle_cont(self, event: Frame) -> None:
        """Collect a fragment of a message."""
        super().handle_cont(event)
        if len(self.frames) > _MOST_FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"more than {_MOST_FRAGMENTS} fragments")

    def send_receive_event_to_app(self) -> None:
        """Hand a message to the application; one that is not understood is no error of the server."""
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            self._fail(CloseCode.INVALID_DATA, "a text message is not UTF-8: send bytes as a binary message")
        else:
            super().send_receive_event_to_app()

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Close the connection because of what the peer sent; does nothing if it is closing already."""
        self.frames = []
        if not self.close_sent:
            self.conn.fail(code, reason)
            self.handle_parser_exception()

    def pause_writing(self) -> None:
        """Start the timeout of a peer that does not read."""
        super().pause_writing()
        self._send_timer.start()

    def resume_writing(self) -> None:
        """Stop the timeout, because the peer reads again."""
        super().resume_writing()
        self._send_timer.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._send_timer.stop()
        if self.sockets is not None:
            self.sockets.busy(self.transport)
        super().connection_lost(exc)


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def received_at(websocket: WebSocket) -> int:
    """Return the monotonic time (ns) of the current message; 0 under another protocol class."""
    found: int = websocket.scope.get("state", {}).get(_RECEIVED, 0)
    return found


def notify_arrivals(websocket: WebSocket, listener: Callable[[], object]) -> None:
    """Call back whenever bytes were read from the socket, before their messages are received."""
    websocket.scope.setdefault("state", {})[_LISTENER] = listener
