"""Transport of the blocking client: performs the steps of conversations with blocking calls."""

from __future__ import annotations

import time

import httpx
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

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


class BlockingTransport:
    """A shared HTTP client and at most one websocket."""

    def __init__(self, http: httpx.Client, address: Address) -> None:
        self._http = http
        self._address = address
        self._socket: ClientConnection | None = None

    def with_own_websocket(self) -> BlockingTransport:
        """Return a transport with the same HTTP client and a websocket of its own."""
        return BlockingTransport(self._http, self._address)

    def run(self, talk: Talk[Result]) -> Result:
        """Perform the steps of a conversation and return its result."""
        try:
            step = next(talk)
            while True:
                try:
                    outcome = self._perform(step)
                except MavstreamError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(outcome)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            talk.close()

    def _perform(self, step: Step) -> Outcome:
        match step:
            case Request():
                return self._ask(step)
            case Pause(seconds):
                time.sleep(seconds)
            case Open():
                self._close()
                self._socket = self._open(step)
            case Send(message):
                self._send(message)
            case Receive(timeout):
                return self._receive(timeout)
            case Close():
                self._close()
        return None

    def _ask(self, request: Request) -> Reply:
        try:
            response = self._http.request(
                request.method,
                request.path,
                params=dict(request.params),
                headers=dict(request.headers),
                content=request.content,
            )
        except httpx.RequestError as error:
            raise failures.request_error(error, self._address) from error
        return Reply(response.status_code, response.headers, response.content)

    def _open(self, step: Open) -> ClientConnection:
        try:
            # Entered here and exited in `_close`, since it outlives this call.
            socket: ClientConnection = connect(
                self._address.websocket(step.path, step.params),
                **self._address.websocket_options(step.buffered),
            ).__enter__()
            return socket
        except (WebSocketException, OSError, EOFError) as error:
            raise failures.open_error(error, self._address) from error

    def _send(self, message: str | bytes) -> None:
        try:
            self._connected.send(message)
        except ConnectionClosed as error:
            raise failures.close_error(error, self._address) from error

    def _receive(self, timeout: float | None) -> str | bytes | None:
        try:
            return self._connected.recv(timeout)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise failures.close_error(error, self._address) from error

    @property
    def _connected(self) -> ClientConnection:
        if self._socket is None:
            raise ConnectionLost("the connection is closed")
        return self._socket

    def _close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.__exit__(None, None, None)
