"""The websocket to the server: connecting with backoff, hello and welcome, messages in and out."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from mavstream import Retry
from mavstream_feeder.errors import FeedLost, NoServer
from mavstream_protocol import Problem
from mavstream_protocol.producer import ProducerState, Received, Resumed, SendWindow, UnexpectedMessage
from mavstream_protocol.wire.feed import CloseCode, StreamCredit

_WRITE_LIMIT = 256 << 10
_FINAL = frozenset(
    {
        CloseCode.TOO_BIG,
        CloseCode.NOT_UNDERSTOOD,
        CloseCode.NOT_AUTHORISED,
        CloseCode.FORBIDDEN,
        CloseCode.UNKNOWN,
        CloseCode.TAKEN,
    }
)
"""Close codes after which reconnecting is of no use."""


@dataclass(frozen=True, slots=True)
class Address:
    """The server's URL (`http://127.0.0.1:8000`) and the token for it."""

    url: str
    token: str | None = None

    @property
    def feed_url(self) -> str:
        """The URL of the feed's websocket."""
        parts = urlsplit(self.url)
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/v1/feed"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts of a feeder, in seconds."""

    answer: float = 10.0
    """For a connection and its welcome."""
    outage: float = 60.0
    """For a server that cannot be reached."""
    first_pause: float = 0.05
    """The backoff after the first failed attempt; it doubles with every further one."""
    longest_pause: float = 2.0


class Link:
    """One connection after another to the same server, on which a producer's windows resume."""

    def __init__(self, address: Address, state: ProducerState, patience: Patience) -> None:
        self.reconnects = 0
        self._address = address
        self._state = state
        self._patience = patience
        self._backoff = Retry(first=patience.first_pause, most=patience.longest_pause)
        self._socket: ClientConnection | None = None
        self._connected_once = False

    async def open(self, *, multi_stream: bool = False) -> bool:
        """Connect, retrying with backoff, and let all windows resume. Raises FeedLost.

        Returns whether multi-stream messages may be sent, if `multi_stream` asks for them.
        """
        await self.close()
        deadline = time.monotonic() + self._patience.outage
        for failures in count(1):
            try:
                multi_stream = await self._greet(multi_stream=multi_stream)
            except ConnectionClosed as closed:
                self.lost(closed)
                reason = str(closed)
            except InvalidStatus as error:
                # Refused for good: the host, the origin, the address; a 429 or 5xx may pass.
                status, reason = error.response.status_code, _reason(error)
                if 400 <= status < 500 and status != 429:
                    raise FeedLost(f"the server refused the feed ({status}): {reason}") from None
            except (OSError, TimeoutError, InvalidHandshake) as error:
                reason = str(error) or type(error).__name__
            except InvalidURI as error:
                raise FeedLost(f"'{self._address.url}' is not the address of a server: {error}") from None
            else:
                self.reconnects += self._connected_once
                self._connected_once = True
                return multi_stream
            pause = self._backoff.pause(failures, random.random())
            if time.monotonic() + pause > deadline:
                raise NoServer(
                    f"no server answers at {self._address.url} for {self._patience.outage:g} s: {reason}"
                )
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def lost(self, closed: ConnectionClosed) -> None:
        """Take note that the connection broke; raises FeedLost where reconnecting is of no use."""
        if closed.rcvd is not None and closed.rcvd.code in _FINAL:
            raise FeedLost(f"the server closed the feed ({closed.rcvd.code}): {closed.rcvd.reason}") from None

    async def send_all(self, messages: Sequence[bytes | str]) -> None:
        """Send messages in one write, which costs a third of as many sends. Raises ConnectionClosed.

        Waits while too much is unsent (back-pressure).
        """
        assert self._socket is not None
        async with self._socket.send_context():
            protocol = self._socket.protocol
            for message in messages:
                if isinstance(message, str):
                    protocol.send_text(message.encode())
                else:
                    protocol.send_binary(message)
            self._socket.transport.write(b"".join(protocol.data_to_send()))

    async def receive(self) -> Received:
        """Wait for the next message and apply it to the windows. Raises ConnectionClosed, FeedLost."""
        assert self._socket is not None
        message = await self._socket.recv(decode=False)
        try:
            return self._state.receive(message)
        except UnexpectedMessage as error:
            raise FeedLost(str(error)) from None

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            await self._socket.close()
            self._socket = None

    async def _greet(self, *, multi_stream: bool) -> bool:
        """Connect, say hello and resume; returns whether multi-stream messages are understood."""
        try:
            await self._connect(multi_stream=multi_stream)
        except ConnectionClosed as closed:
            if multi_stream and closed.rcvd is not None and closed.rcvd.code == CloseCode.NOT_UNDERSTOOD:
                # A server from before there were any.
                await self._connect(multi_stream=False)
                return False
            raise
        return multi_stream

    async def _connect(self, *, multi_stream: bool) -> None:
        async with asyncio.timeout(self._patience.answer):
            self._socket = await connect(
                self._address.feed_url,
                additional_headers=self._address.headers,
                compression=None,
                write_limit=_WRITE_LIMIT,
                open_timeout=None,
                close_timeout=self._patience.answer,
            )
            await self._socket.send(self._state.hello(multi_stream=multi_stream))
            message = await self._socket.recv(decode=False)
        try:
            welcome = self._state.read_welcome(message)
        except UnexpectedMessage as error:
            raise FeedLost(str(error)) from None
        missing = [name for name in self._state.windows if name not in welcome.streams]
        if missing:
            raise FeedLost(f"the server does not know {', '.join(missing)}: create them, or give --create")
        for name, window in self._state.windows.items():
            _resume(window, welcome.streams[name])


def _resume(window: SendWindow, known: StreamCredit) -> None:
    match window.resume(known.last_sequence, known.credit):
        case Resumed.FRAMES_LOST:
            raise FeedLost(
                f"stream '{window.stream}': the server acknowledged frame {window.acked} and now has only "
                f"{known.last_sequence}: its data directory was changed, start the feed again under another "
                "--producer name"
            )
        case Resumed.FRAMES_UNKNOWN:
            raise FeedLost(
                f"stream '{window.stream}': the server has frame {known.last_sequence} of this producer, "
                f"which sent only {window.next_sequence - 1}: another feeder uses the same name, "
                "give --producer"
            )


def _reason(refused: InvalidStatus) -> str:
    """Return why a server, or a proxy before it, refused a websocket."""
    try:
        return Problem.model_validate_json(bytes(refused.response.body or b"")).detail
    except ValidationError:
        return str(refused)
