"""`WS /v1/queries/{id}/results`: sends the results of a query to one subscriber."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import NamedTuple

from fastapi import APIRouter
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket, WebSocketDisconnect

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.wire.feed import CloseCode
from mavstream_protocol.wire.results import OnLag
from mavstream_server.api.auth import admitted
from mavstream_server.api.services import services_of
from mavstream_server.core.errors import Forbidden, NotFound, Refused
from mavstream_server.core.principal import Principal
from mavstream_server.ingest.messages import cut_reason
from mavstream_server.results.encoding import PUSHED, ResultFormat
from mavstream_server.results.service import OffsetAhead, TooManySubscribers
from mavstream_server.results.subscription import LATEST, Lagging, Subscription

router = APIRouter()
_log = logging.getLogger("mavstream.results")

_NORMAL = 1000
_BROKEN = 1011
_KNOWN = frozenset({"after", "format", "on_lag", "token"})
_LAST_OFFSET = (1 << 63) - 1


class Parameters(NamedTuple):
    """The query parameters of the address."""

    after: int | str | None
    format: ResultFormat
    on_lag: OnLag


def read_parameters(params: QueryParams) -> Parameters:
    """Parse the query parameters; raises Refused that names the wrong one."""
    strange = sorted(set(params) - _KNOWN)
    if strange:
        raise Refused(f"parameter '{strange[0][:40]}' is not known: there are after, format and on_lag")
    return Parameters(
        _offset(params.get("after")),
        ResultFormat(_one_of("format", params.get("format", ResultFormat.ROWS), PUSHED)),
        OnLag(_one_of("on_lag", params.get("on_lag", OnLag.GAP), tuple(OnLag))),
    )


def _offset(text: str | None) -> int | str | None:
    if text is None or text == LATEST:
        return text
    digits = text.removeprefix("-")
    if not (
        digits.isascii() and digits.isdecimal() and len(digits) <= 19 and -1 <= int(text) <= _LAST_OFFSET
    ):
        raise Refused(f"after is '{text[:40]}': give an offset from -1, or latest")
    return int(text)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise Refused(f"{name} is '{value[:40]}': give one of {', '.join(known)}")
    return value


class Subscriber:
    """Sends results to a websocket until the websocket, the query or the server ends."""

    def __init__(self, websocket: WebSocket, principal: Principal) -> None:
        self.principal = principal
        self._websocket = websocket
        self._sending: asyncio.Task[None] | None = None
        self._leaving: tuple[CloseCode, str] | None = None
        self._closed = asyncio.Event()

    async def leave(self, code: CloseCode, reason: str) -> None:
        """Close the websocket, and return when the close frame is sent."""
        self._leaving = code, reason
        if self._sending is not None:
            self._sending.cancel()
            await self._closed.wait()

    async def run(self, subscription: Subscription) -> None:
        """Send until the end; also notice a subscriber that closes while there is nothing to send."""
        self._sending = asyncio.create_task(self._send(subscription))
        listening = asyncio.create_task(self._listen())
        try:
            await asyncio.wait((self._sending, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (self._sending, listening):
                task.cancel()
            await asyncio.wait((self._sending, listening))
        await self._close()
        self._closed.set()

    async def _send(self, subscription: Subscription) -> None:
        websocket = self._websocket
        while (message := await subscription.next()) is not None:
            if isinstance(message, str):
                await websocket.send_text(message)
            else:
                await websocket.send_bytes(message)
            # Yields to the event loop: a fast reader of a long log must not block the others.
            await asyncio.sleep(0)

    async def _listen(self) -> None:
        """Return when the subscriber has closed; its messages are ignored."""
        while (await self._websocket.receive())["type"] != "websocket.disconnect":
            pass

    async def _close(self) -> None:
        assert self._sending is not None
        code, reason = _NORMAL, "the query has ended"
        if self._leaving is not None:
            code, reason = self._leaving
        elif self._sending.cancelled():
            return  # the subscriber closed first
        elif (error := self._sending.exception()) is not None:
            if isinstance(error, WebSocketDisconnect | OSError | RuntimeError):
                return
            code, reason = CloseCode.LAGGING, str(error)
            if not isinstance(error, Lagging):
                _log.error("a subscription failed", exc_info=error)
                code, reason = _BROKEN, "the server failed at this subscription; its log says why"
        await close(self._websocket, code, reason)


async def close(websocket: WebSocket, code: int, reason: str) -> None:
    """Close a websocket with a reason, cut to fit a close frame; does nothing if it is closed."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
        await websocket.close(code, cut_reason(reason))


@router.websocket("/v1/queries/{id}/results")
async def subscribe(websocket: WebSocket, id: str) -> None:  # noqa: A002
    """Push the results of a query; see `mavstream_protocol.wire.results` for the messages."""
    principal = await admitted(websocket, "client")
    if principal is None:
        return
    services = services_of(websocket)
    try:
        parameters = read_parameters(websocket.query_params)
        found = services.queries.get(id)
        found.require_reader(principal)
        results = services.results.of(found)
        subscription = Subscription(services.results, results, *parameters)
    except MavstreamError as error:
        await close(websocket, _CODES.get(type(error), CloseCode.NOT_UNDERSTOOD), str(error))
        return
    subscriber = Subscriber(websocket, principal)
    services.sockets.add(subscriber)
    try:
        with subscription:
            await subscriber.run(subscription)
    finally:
        services.sockets.discard(subscriber)


_CODES: dict[type[MavstreamError], CloseCode] = {
    Forbidden: CloseCode.FORBIDDEN,
    NotFound: CloseCode.UNKNOWN,
    TooManySubscribers: CloseCode.TOO_MANY,
    OffsetAhead: CloseCode.NOT_UNDERSTOOD,
    Refused: CloseCode.NOT_UNDERSTOOD,
}
