"""`WS /v1/feed`: connects the websockets of producers with their sessions."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.access.quotas import RowRate
from mavstream_server.api.auth import admitted
from mavstream_server.api.services import Services, services_of
from mavstream_server.api.websockets.stamping import notify_arrivals, received_at
from mavstream_server.core.errors import ServiceError
from mavstream_server.core.event_loop.work_queue import in_turn
from mavstream_server.core.principal import Principal
from mavstream_server.ingest.producer_session import ProducerSession

router = APIRouter()

_ACKS_APART = 0.004
"""Seconds between messages to a producer that gets combined acks, so that each carries more of them."""
_MOST_UNSENT = 256
"""Unsent messages to a producer that does not read; beyond that nothing is read from it either."""


class _Connection:
    """A websocket and its session: one task reads, one writes."""

    def __init__(self, websocket: WebSocket, services: Services, principal: Principal) -> None:
        self.principal = principal
        self._websocket = websocket
        self._producers = services.producers
        self._work = services.work
        self._clock = services.streams.clock
        self._awake = asyncio.Event()
        self._room = asyncio.Event()
        self._pending = services.pending_feeds
        self._upkeep = services.producer_upkeep
        self._audit = services.audit
        self._rate = services.usage.rate(principal)
        self._hello_timeout = services.settings.hello_timeout / 1e6
        self.session = ProducerSession(
            services.streams,
            services.traffic,
            services.settings.delivery,
            services.settings.max_frame_bytes,
            self._awake.set,
            self._greeted,
            principal,
        )

    async def run(self) -> None:
        """Serve the connection until one side closes it."""
        notify_arrivals(self._websocket, lambda: self._work.announce(self.session.importance))
        writer = asyncio.create_task(self._write())
        self._pending.add(self)
        timer = asyncio.get_running_loop().call_later(self._hello_timeout, self._no_hello)
        try:
            await self._read()
        finally:
            timer.cancel()
            self._pending.discard(self)
            if self._producers.disconnected(self.session):
                self._upkeep.touch(self.session.producer)
            # Sends the close frame if the server closed; does nothing if the producer has gone.
            self.session.close(CloseCode.GOING_AWAY, "")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(writer, 5)

    async def leave(self, code: CloseCode, reason: str) -> None:
        """Close the connection because the server stops or the token is no longer valid."""
        self.session.close(code, reason)

    def _greeted(self, session: ProducerSession) -> None:
        self._producers.connected(session)
        self._pending.discard(self)
        self._upkeep.touch(session.producer)
        client = self._websocket.client
        address = None if client is None else client.host
        self._audit.record("hello", self.principal, address, object=f"producer {session.producer}")

    def _no_hello(self) -> None:
        if self in self._pending:
            seconds = self._hello_timeout
            self.session.close(CloseCode.TOO_SLOW, f"got no hello within {seconds:g} s: send it first")

    async def _read(self) -> None:
        websocket, session = self._websocket, self.session
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes")
            received = message["text"] if data is None else data
            received_ns = received_at(websocket)
            arrival = self._clock.at(received_ns) if received_ns else 0
            # While it waits for its turn, at most one more read from the socket is buffered.
            await in_turn(self._work, session.importance, partial(session.received, received, arrival))
            if self._rate is not None:
                await self._slow_down(self._rate)
            if session.unsent > _MOST_UNSENT:
                self._room.clear()
                await self._room.wait()

    async def _slow_down(self, rate: RowRate) -> None:
        """Read nothing while the token has sent more rows than it may; TCP slows the producer down."""
        rate.take(self.session.rows)
        self.session.rows = 0
        while (wait := rate.wait) and self.session.closing is None:
            await asyncio.sleep(min(wait, 1.0))

    async def _write(self) -> None:
        websocket, session = self._websocket, self.session
        # The client has gone or uvicorn has closed the connection: there is nobody to report to.
        try:
            while True:
                await self._awake.wait()
                self._awake.clear()
                for text in session.take():
                    await websocket.send_text(text)
                self._room.set()
                if session.closing is not None:
                    await websocket.close(*session.closing)
                    return
                if session.multi_stream:
                    await asyncio.sleep(_ACKS_APART)
        except (WebSocketDisconnect, RuntimeError, OSError):
            pass
        finally:
            self._room.set()


@router.websocket("/v1/feed")
async def feed(websocket: WebSocket) -> None:
    """Accept frames of a producer for any number of streams; see `mavstream_protocol.wire.feed`."""
    services = services_of(websocket)
    principal = await admitted(websocket, Role.FEEDER)
    if principal is None:
        return
    most = services.settings.max_pending_feeds
    if len(services.pending_feeds) >= most:
        reason = f"{most} websockets of producers wait for their hello, which is the limit: connect again"
        await websocket.close(CloseCode.TOO_MANY, reason)
        return
    connection = _Connection(websocket, services, principal)
    services.sockets.add(connection)
    try:
        await connection.run()
    finally:
        services.sockets.discard(connection)


@router.get("/v1/feed", tags=["streams"], status_code=426, response_model=None)
async def feed_needs_upgrade() -> None:
    """Feed streams over a websocket: connect here with `Upgrade: websocket`; messages `FromProducer`."""
    raise NeedsUpgrade("/v1/feed is a websocket: connect with ws://, or POST /v1/streams/{name}/tuples")


class NeedsUpgrade(ServiceError):
    """A plain HTTP request to a websocket endpoint."""

    status = 426
    code = "needs_upgrade"
    title = "This is a websocket"
    headers = {"upgrade": "websocket"}
