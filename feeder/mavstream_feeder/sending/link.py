"""The websocket to the server: connecting with patience, hello and welcome, messages in and out."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from mavstream_feeder.errors import FeedLost, NoServer
from mavstream_protocol.wire.feed import Ack, Acks, CloseCode, Ended, Hello, Reject, Welcome, to_producer

_WRITE_LIMIT = 256 << 10
_ACK = b'{"type":"ack'
_QUOTE = ord('"')
_REFUSALS = frozenset(
    {
        CloseCode.TOO_BIG,
        CloseCode.NOT_UNDERSTOOD,
        CloseCode.NOT_AUTHORISED,
        CloseCode.FORBIDDEN,
        CloseCode.UNKNOWN,
        CloseCode.TAKEN,
    }
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is (`http://127.0.0.1:8000`) and the token that it knows us by."""

    url: str
    token: str | None = None

    @property
    def feed_url(self) -> str:
        """The address of the feed's websocket."""
        parts = urlsplit(self.url)
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/v1/feed"

    @property
    def headers(self) -> dict[str, str]:
        """What a request carries."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a feeder waits, in seconds."""

    answer: float = 10.0
    """For a connection and its welcome."""
    outage: float = 60.0
    """For a server that is gone."""
    first_pause: float = 0.05
    longest_pause: float = 2.0


class Link:
    """One connection after another to the same server."""

    def __init__(self, address: Address, producer: str, patience: Patience) -> None:
        self.max_frame_bytes = 1 << 20
        self.bundles = False
        """Whether the server takes bundles on this connection."""
        self.reconnects = 0
        self._address = address
        self._producer = producer
        self._patience = patience
        self._socket: ClientConnection | None = None
        self._connected_once = False

    async def open(self, streams: tuple[str, ...], *, bundles: bool = False) -> Welcome:
        """Connect, as often as patience allows, and return the welcome. Raises FeedLost.

        `bundles` asks for leave to send them; `self.bundles` is whether the server understood.
        """
        await self.close()
        deadline = time.monotonic() + self._patience.outage
        pause = self._patience.first_pause
        while True:
            try:
                welcome = await self._greet(streams, bundles)
            except ConnectionClosed as closed:
                if bundles and closed.rcvd is not None and closed.rcvd.code == CloseCode.NOT_UNDERSTOOD:
                    bundles = False  # a server from before there were any
                    continue
                self.lost(closed)
                reason = str(closed)
            except (OSError, TimeoutError, InvalidHandshake) as error:
                reason = str(error) or type(error).__name__
            except InvalidURI as error:
                raise FeedLost(f"'{self._address.url}' is no address of a server: {error}") from None
            else:
                self.reconnects += self._connected_once
                self._connected_once = True
                self.bundles = bundles
                return welcome
            if time.monotonic() + pause > deadline:
                raise NoServer(
                    f"no server answers at {self._address.url} for {self._patience.outage:g} s: {reason}"
                )
            # Half of the pause is random, so that many feeders do not come back at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, self._patience.longest_pause)

    def lost(self, closed: ConnectionClosed) -> None:
        """Take note that the connection broke; raises FeedLost where connecting again is of no use."""
        if closed.rcvd is not None and closed.rcvd.code in _REFUSALS:
            raise FeedLost(f"the server closed the feed ({closed.rcvd.code}): {closed.rcvd.reason}") from None

    async def send(self, message: bytes | str) -> None:
        """Send a message; waits while too much is unsent. Raises ConnectionClosed."""
        assert self._socket is not None
        await self._socket.send(message)

    async def send_all(self, messages: Sequence[bytes | str]) -> None:
        """Send messages in one write, which costs a third of as many sends. Raises ConnectionClosed."""
        assert self._socket is not None
        async with self._socket.send_context():
            protocol = self._socket.protocol
            for message in messages:
                if isinstance(message, str):
                    protocol.send_text(message.encode())
                else:
                    protocol.send_binary(message)
            self._socket.transport.write(b"".join(protocol.data_to_send()))

    async def receive(self) -> Ack | Acks | Reject | Ended:
        """Return the next message about a stream. Raises ConnectionClosed, FeedLost."""
        message = await self._receive()
        if isinstance(message, Welcome):
            raise FeedLost("the server welcomed a producer twice on one connection")
        return message

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            await self._socket.close()
            self._socket = None

    async def _greet(self, streams: tuple[str, ...], bundles: bool) -> Welcome:
        async with asyncio.timeout(self._patience.answer):
            self._socket = await connect(
                self._address.feed_url,
                additional_headers=self._address.headers,
                compression=None,
                write_limit=_WRITE_LIMIT,
                open_timeout=None,
                close_timeout=self._patience.answer,
            )
            hello = Hello(producer=self._producer, streams=streams, bundles=bundles)
            await self._socket.send(hello.model_dump_json())
            welcome = await self._receive()
        if not isinstance(welcome, Welcome):
            raise FeedLost(f"the server answered hello with '{welcome.type}' instead of a welcome")
        missing = [name for name in streams if name not in welcome.streams]
        if missing:
            raise FeedLost(f"the server does not know {', '.join(missing)}: create them, or give --create")
        self.max_frame_bytes = welcome.max_frame_bytes
        return welcome

    async def _receive(self) -> Welcome | Ack | Acks | Reject | Ended:
        assert self._socket is not None
        message = await self._socket.recv(decode=False)
        try:
            # Acks are as many as frames; reading them by the model would cost more than all the rest.
            if message.startswith(_ACK):
                kind = Ack if message[len(_ACK)] == _QUOTE else Acks
                return kind.model_construct(**orjson.loads(message))
            return to_producer.validate_json(message)
        except ValueError:
            raise FeedLost(f"the server sent what is no message of the feed: {message[:100]!r}") from None
