"""Request limits, enforced before anything is computed: body size, time for a body, open connections."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.quantities import format_size
from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.auth import HEALTH, Auth
from mavstream_server.api.problems import ProblemResponse
from mavstream_server.core.errors import problem_of
from mavstream_server.core.settings import Settings

_TABLES = "/v1/tables/"
_RESULTS = re.compile("/v1/queries/[^/]+/results")

_SLOWEST_BODY = 64 << 10
"""The minimum bytes per second of a body after its first timeout; otherwise it could take forever."""


class BodyTooLarge(MavstreamError):
    """Raised for a body that exceeds the size limit."""

    code = "body_too_large"
    title = "The body is too large"
    status = 413


class BodyTooSlow(MavstreamError):
    """Raised for a body that stops arriving."""

    code = "body_too_slow"
    title = "The body did not arrive in time"
    status = 408


class TooManyConnections(MavstreamError):
    """Raised if too many requests and websockets are open."""

    code = "too_many_connections"
    title = "The server has reached its limit of connections"
    status = 503


@dataclass(slots=True)
class Connections:
    """Number of open requests and websockets."""

    most: int
    reserved: int = 0
    """Further ones that administrators may open."""
    open: int = 0


class Limits:
    """Outermost middleware: rejects requests that are too large, too slow or too many."""

    def __init__(self, app: ASGIApp, settings: Settings, auth: Auth, connections: Connections) -> None:
        self.app = app
        self.max_body_bytes = settings.max_body_bytes
        self.max_table_bytes = settings.max_table_bytes
        self.max_batch_bytes = settings.max_batch_bytes
        self.connections = connections
        self._auth = auth
        self._body_seconds = settings.body_timeout / 1e6

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests that respect the limits."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if scope["path"] in HEALTH:
            # Cheap and never refused: a server must not be restarted because it has much to do.
            await self.app(scope, receive, send)
            return
        if self.connections.open >= self.connections.most and not self._reserved(scope):
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

    def _reserved(self, scope: Scope) -> bool:
        """Return whether there is room beyond the limit for this request: it is an administrator's."""
        connections = self.connections
        if connections.open >= connections.most + connections.reserved or not self._auth.guarded:
            return False
        try:
            return self._auth.identify(HTTPConnection(scope)).is_admin
        except MavstreamError:
            return False

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        table = scope["method"] == "PUT" and scope["path"].startswith(_TABLES)
        too_large = self._table_too_large if table else self._too_large
        most = self.max_table_bytes if table else self.max_body_bytes
        if scope["method"] == "POST" and _RESULTS.fullmatch(scope["path"]):
            too_large, most = self._batch_too_large, self.max_batch_bytes
        if declared.isdigit() and int(declared) > most:
            # Before reading: the client may have gigabytes to send.
            problem = problem_of(too_large(int(declared)))
            await ProblemResponse(problem, {"connection": "close"})(scope, receive, send)
            return
        await self.app(scope, self._counted(receive, most, too_large), send)

    def _counted(self, receive: Receive, most: int, too_large: Callable[[int], BodyTooLarge]) -> Receive:
        received, more, patience = 0, True, self._body_seconds
        waited = 0.0  # only for the client: the time that the application takes is not its fault

        async def counted() -> Message:
            nonlocal received, more, waited
            if not more:
                return await receive()
            left = min(patience + received / _SLOWEST_BODY - waited, patience)
            begin = time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                raise BodyTooSlow(
                    f"got {received} bytes of the body in {waited + left:.1f} s; it may pause for "
                    f"{patience:g} s and must have {format_size(_SLOWEST_BODY)} per second: send it in one go"
                ) from None
            waited += time.monotonic() - begin
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

    def _batch_too_large(self, received: int) -> BodyTooLarge:
        return BodyTooLarge(
            f"the batch has {received} bytes or more and this server takes {self.max_batch_bytes} "
            f"({format_size(self.max_batch_bytes)}): publish less at once, or raise MAVSTREAM_MAX_BATCH_BYTES"
        )

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
