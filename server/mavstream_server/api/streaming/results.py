"""Results of a query over plain HTTP, as long as it runs: server-sent events, JSON lines, CSV."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.services import Services
from mavstream_server.core.principal import Principal
from mavstream_server.results.encoding import ResultFormat
from mavstream_server.results.line_formats import csv_header, event
from mavstream_server.results.subscription import Lagging, Subscription

EVENTS, LINES, CSV = "text/event-stream", "application/x-ndjson", "text/csv"
FORMATS = {EVENTS: ResultFormat.EVENTS, LINES: ResultFormat.LINES, CSV: ResultFormat.CSV}
"""Media types of results that are pushed, with their formats."""

_log = logging.getLogger("mavstream.results")

_ALIVE_S = 15.0
"""Seconds without a row after which an event that says nothing keeps the connection open."""
_HEADERS = [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class _Incomplete(Exception):
    """Rows are missing, which these lines cannot say: the response breaks off."""


class ResultStream(Response):
    """A response with the rows of a query as they are answered.

    Events say what else happens: `opened`, `gap`, `replaced`, `closed`. Lines and CSV have rows alone: where
    rows are missing, or columns change in CSV, the response breaks off, unless gaps were asked for.
    """

    def __init__(
        self,
        services: Services,
        principal: Principal,
        subscription: Subscription,
        media_type: str,
        *,
        gaps: bool,
        follow: bool,
    ) -> None:
        super().__init__(media_type=media_type)
        self.principal = principal
        self._services = services
        self._subscription = subscription
        self._media_type = media_type
        self._gaps = gaps
        self._follow = follow
        self._sending: asyncio.Task[None] | None = None
        self._left = asyncio.Event()

    async def leave(self, code: CloseCode, reason: str) -> None:
        """End the response because the server stops or the token is no longer valid."""
        if self._sending is not None:
            self._sending.cancel()
            await self._left.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end; also notice a client that has gone while there is nothing to send."""
        self._services.sockets.add(self)
        self._sending = asyncio.create_task(self._send(send))
        listening = asyncio.create_task(_gone(receive))
        try:
            with self._subscription:
                await asyncio.wait((self._sending, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._services.sockets.discard(self)
            for task in (self._sending, listening):
                task.cancel()
            await asyncio.wait((self._sending, listening))
            self._left.set()
        error = None if self._sending.cancelled() else self._sending.exception()
        if error is not None and not isinstance(error, _Incomplete | Lagging | OSError):
            _log.error("a stream of results failed", exc_info=error)

    async def _send(self, send: Send) -> None:
        content_type = f"{self._media_type}; charset=utf-8".encode()
        headers = [(b"content-type", content_type), *_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for body in self._bodies():
            await send({"type": "http.response.body", "body": body, "more_body": True})
            # Yields to the event loop: a fast reader of a long log must not block the others.
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _bodies(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._next()
            if message is None:
                return
            if isinstance(message, bytes):
                yield message
            elif (said := self._said(orjson.loads(message))) is not None:
                yield said

    async def _next(self) -> str | bytes | None:
        """Return the next message, None at the end, and an empty one after a while without any."""
        if not self._follow:
            return self._subscription.next_now()
        try:
            return await asyncio.wait_for(self._subscription.next(), _ALIVE_S)
        except TimeoutError:
            return b": alive\n\n" if self._media_type == EVENTS else b""

    def _said(self, message: dict[str, Any]) -> bytes | None:
        """Return what is sent of a message that is not rows; raises _Incomplete."""
        kind = message.pop("type")
        if self._media_type == EVENTS:
            return event(kind, message)
        if kind == "gap" and not self._gaps:
            raise _Incomplete
        if self._media_type == CSV:
            if kind == "opened":
                self._columns = [one["name"] for one in message["fields"]]
                return csv_header(self._columns)
            if kind == "replaced" and [one["name"] for one in message["fields"]] != self._columns:
                raise _Incomplete
        return None


async def _gone(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
