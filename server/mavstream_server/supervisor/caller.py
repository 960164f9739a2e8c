"""The API process's end of the control channel: calls with replies, and events."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from mavstream_server.core.errors import Conflict, NotReady, ServiceError
from mavstream_server.engine.process.channel import (
    EVENT,
    HEADER,
    MalformedMessage,
    Packet,
    encode,
    parse_header,
)
from mavstream_server.engine.process.events import Event
from mavstream_server.engine.process.messages import Done, Failed, Value


class EngineUnavailable(NotReady):
    """The engine process is not running, has died during a call, or did not answer in time."""

    code = "engine_unavailable"
    title = "The engine is not available"


class EngineRefused(Conflict):
    """The engine rejected a command; `code` is that of the engine's error."""

    code = "engine_refused"
    title = "The engine refused this"


class Caller:
    """Sends commands and awaits their replies, many concurrently; calls `on_event` for each event."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[Event], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_event = on_event
        self._number = EVENT
        self._pending: dict[int, asyncio.Future[Value]] = {}
        self.closed = False
        """Whether the channel is closed: no more messages can arrive."""
        self.received = 0
        """How many messages have arrived."""
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def connect(cls, connection: socket.socket, on_event: Callable[[Event], None]) -> Self:
        """Return a caller on a connected socket, which it closes."""
        connection.setblocking(False)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        return cls(reader, writer, on_event)

    async def call(self, command: object, timeout: float, *, large: bool = False) -> Value:
        """Send a command and return the value of its reply; raises EngineRefused, EngineUnavailable.

        After a timeout the engine may still execute the command. A large command is encoded in a thread, so
        that others may overtake it.
        """
        self._number += 1
        number = self._number
        data = await asyncio.to_thread(encode, number, command) if large else encode(number, command)
        return await self.exchange(number, data, timeout)

    async def exchange(self, number: int, data: bytes, timeout: float) -> Value:
        """Send an encoded command and await the reply with its number."""
        if self.closed:
            raise EngineUnavailable("the engine process is gone; it is being restarted, try again soon")
        reply: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._pending[number] = reply
        try:
            async with asyncio.timeout(timeout):
                with suppress(ConnectionError):  # `_receive` detects and reports it
                    self._writer.write(data)
                    await self._writer.drain()
                return await reply
        except TimeoutError:
            raise EngineUnavailable(
                f"the engine process did not answer within {timeout:g} s; it may be overloaded, try again"
            ) from None
        finally:
            self._pending.pop(number, None)
            reply.cancel()

    async def gone(self) -> None:
        """Return when the other side has closed the channel, or nothing more can be read from it."""
        await asyncio.wait((self._receiving,))

    async def close(self) -> None:
        """Close the channel; pending calls fail."""
        self._receiving.cancel()
        await asyncio.wait((self._receiving,))
        # A graceful close would wait until a hung process has read everything.
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _receive(self) -> None:
        try:
            while True:
                length, number = parse_header(await self._reader.readexactly(HEADER.size))
                self._handle(Packet(number, await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError, MalformedMessage):
            return
        finally:
            self.closed = True
            for reply in self._pending.values():
                _fail(reply, EngineUnavailable("the engine process died before it answered; try again soon"))

    def _handle(self, packet: Packet) -> None:
        self.received += 1
        message: Any = packet.message()
        if packet.number == EVENT:
            self._on_event(message)
            return
        reply = self._pending.get(packet.number)
        if reply is None:  # the call has timed out or was cancelled
            return
        match message:
            case Done(value) if not reply.done():
                reply.set_result(value)
            case Failed(code, detail):
                _fail(reply, EngineRefused(detail, code=code))


def _fail(reply: asyncio.Future[Value], error: ServiceError) -> None:
    if not reply.done():
        reply.set_exception(error)
