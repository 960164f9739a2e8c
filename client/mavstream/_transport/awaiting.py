"""Transport of the asyncio client: performs the steps of conversations with awaited calls."""

from __future__ import annotations

import asyncio

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from mavstream._errors import ConnectionLost
from mavstream._transport import failures
from mavstream._transport.address import Address
from mavstream._transport.steps import (
    Close,
    Open,
    Outcome,
    Pause,
    Receive,
    Reply,
    Request,
    Result,
    Send,
    Step,
    Talk,
)
from mavstream_protocol import MavstreamError


class AsyncTransport:
    """A shared HTTP client and at most one websocket."""

    def __init__(self, http: httpx.AsyncClient, address: Address) -> None:
        self._http = http
        self._address = address
        self._socket: ClientConnection | None = None
        # Kept from one step to the next, so that a receive that timed out does not lose its message.
        self._receiving: asyncio.Task[str | bytes] | None = None

    def with_own_websocket(self) -> AsyncTransport:
        """Return a transport with the same HTTP client and a websocket of its own."""
        return AsyncTransport(self._http, self._address)

    async def run(self, talk: Talk[Result]) -> Result:
        """Perform the steps of a conversation and return its result."""
        try:
            step = next(talk)
            while True:
                try:
                    outcome = await self._perform(step)
                except MavstreamError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(outcome)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            talk.close()

    async def _perform(self, step: Step) -> Outcome:
        match step:
            case Request():
                return await self._ask(step)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Open():
                await self._close()
                self._socket = await self._open(step)
            case Send(message):
                await self._send(message)
            case Receive(timeout):
                return await self._receive(timeout)
            case Close():
                await self._close()
        return None

    async def _ask(self, request: Request) -> Reply:
        try:
            response = await self._http.request(
                request.method,
                request.path,
                params=dict(request.params),
                headers=dict(request.headers),
                content=request.content,
            )
        except httpx.RequestError as error:
            raise failures.request_error(error, self._address) from error
        return Reply(response.status_code, response.headers, response.content)

    async def _open(self, step: Open) -> ClientConnection:
        try:
            return await connect(
                self._address.websocket(step.path, step.params),
                **self._address.websocket_options(step.buffered),
            )
        except (WebSocketException, OSError, EOFError) as error:
            raise failures.open_error(error, self._address) from error

    async def _send(self, message: str | bytes) -> None:
        try:
            await self._connected.send(message)
        except ConnectionClosed as error:
            raise failures.close_error(error, self._address) from error

    async def _receive(self, timeout: float | None) -> str | bytes | None:
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._connected.recv())
        done, _ = await asyncio.wait({self._receiving}, timeout=timeout)
        if not done:
            return None
        task, self._receiving = self._receiving, None
        try:
            return task.result()
        except ConnectionClosed as error:
            raise failures.close_error(error, self._address) from error

    @property
    def _connected(self) -> ClientConnection:
        if self._socket is None:
            raise ConnectionLost("the connection is closed")
        return self._socket

    async def _close(self) -> None:
        socket, self._socket = self._socket, None
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.cancel()
            await asyncio.wait({receiving})
            if not receiving.cancelled():
                receiving.exception()
        if socket is not None:
            await socket.close()
