"""Request limits, enforced before anything is read or computed: body size, body timeout, open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.quantities import format_size
from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.problems import ProblemResponse
from mavstream_server.core.errors import problem_of

_TABLES = "/v1/tables/"

BODY_SECONDS = 30.0
"""Maximum time between two chunks of a body, in seconds, before the request is aborted."""


class BodyTooLarge(MavstreamError):
    """Raised for a body that exceeds the size limit."""

    code = "body_too_large"
    title = "The body is too large"
    status = 413


class BodyTooSlow(MavstreamError):
    """Raised for a body that stops arriving."""

    code = "body_too_slow"
    title = "The body did not come to its end"
    status = 408


class TooManyConnections(MavstreamError):
    """Raised if too many requests and websockets are open."""

    code = "too_many_connections"
    title = "The server has all the connections that it takes"
    status = 503


@dataclass(slots=True)
class Connections:
    """Number of open requests and websockets."""

    most: int
    open: int = 0


class Limits:
    """Outermost middleware: rejects requests that are too large, too slow or too many."""

    def __init__(
        self, app: ASGIApp, max_body_bytes: int, max_table_bytes: int, connections: Connections
    ) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.max_table_bytes = max_table_bytes
        self.connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests that respect the limits."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if self.connections.open >= self.connections.most:
            await self._refuse(scope, receive, send)
            return
        self.connections.open += 1
        try:
            if scope["type"] == "http":
                await self._request(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        finally:
            self.connections.open -= 1

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        table = scope["method"] == "PUT" and scope["path"].startswith(_TABLES)
        too_large = self._table_too_large if table else self._too_large
        most = self.max_table_bytes if table else self.max_body_bytes
        if declared.isdigit() and int(declared) > most:
            # Before reading: the client may have gigabytes to send.
            problem = problem_of(too_large(int(declared)))
            await ProblemResponse(problem, {"connection": "close"})(scope, receive, send)
            return
        await self.app(scope, self._counted(receive, most, too_large), send)

    def _counted(self, receive: Receive, most: int, too_large: Callable[[int], BodyTooLarge]) -> Receive:
        received, more = 0, True

        async def counted() -> Message:
            nonlocal received, more
            if not more:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), BODY_SECONDS)
            except TimeoutError:
                raise BodyTooSlow(
                    f"got {received} bytes of the body, then nothing for {BODY_SECONDS:g} s: "
                    "send it in one go"
                ) from None
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > most:
                raise too_large(received)
            return message

        return counted

    def _too_large(self, received: int) -> BodyTooLarge:
        return BodyTooLarge(
            f"the body has {received} bytes or more and this server takes {self.max_body_bytes} "
            f"({format_size(self.max_body_bytes)}): send it in parts"
        )

    def _table_too_large(self, received: int) -> BodyTooLarge:
        error = BodyTooLarge(
            f"the table has {received} bytes or more and this server takes {self.max_table_bytes} "
            f"({format_size(self.max_table_bytes)}): put less, or raise MAVSTREAM_MAX_TABLE_BYTES"
        )
        error.code = "table_too_large"
        return error

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = (
            f"{self.connections.most} requests and websockets are open, which is the limit: try again soon"
        )
        if scope["type"] == "http":
            problem = problem_of(TooManyConnections(detail))
            await ProblemResponse(problem, {"retry-after": "1"})(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": CloseCode.TOO_MANY, "reason": detail[:120]})
