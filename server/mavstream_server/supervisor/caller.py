"""The API process's end of the control channel: calls that await their replies, and events."""

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
from mavstream_server.engine.process.messages import Done, Event, Failed, Value


class EngineUnavailable(NotReady):
    """The engine process is not there, has died meanwhile, or did not answer in time."""

    code = "engine_unavailable"
    title = "The engine is not available"


class EngineRefused(Conflict):
    """The engine answered that it cannot do what it was told; `code` is that of its own error."""

    code = "engine_refused"
    title = "The engine refused this"


class Caller:
    """Sends commands and awaits their replies, many at once. Hands events to `on_event` as they come."""

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
        self._waiting: dict[int, asyncio.Future[Value]] = {}
        self.over = False
        """Whether nothing more can come."""
        self.heard = 0
        """How many messages have come."""
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def connect(cls, connection: socket.socket, on_event: Callable[[Event], None]) -> Self:
        """Take over a connected socket."""
        connection.setblocking(False)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        return cls(reader, writer, on_event)

    async def call(self, command: object, timeout: float) -> Value:
        """Send a command and return what came of it; raises EngineRefused, EngineUnavailable.

        After a timeout the command may still be carried out.
        """
        self._number += 1
        return await self.exchange(self._number, encode(self._number, command), timeout)

    async def exchange(self, number: int, data: bytes, timeout: float) -> Value:
        """Send encoded bytes and await the reply with their number."""
        if self.over:
            raise EngineUnavailable("the engine process is gone; it is being restarted, try again soon")
        reply: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            async with asyncio.timeout(timeout):
                with suppress(ConnectionError):  # told by the end of what it sends
                    self._writer.write(data)
                    await self._writer.drain()
                return await reply
        except TimeoutError:
            raise EngineUnavailable(
                f"the engine process did not answer within {timeout:g} s; it may be overloaded, try again"
            ) from None
        finally:
            self._waiting.pop(number, None)
            reply.cancel()

    async def gone(self) -> None:
        """Return when the other side has closed the channel, or nothing more can be read from it."""
        await asyncio.wait((self._receiving,))

    async def close(self) -> None:
        """Close the channel; calls that wait fail."""
        self._receiving.cancel()
        await asyncio.wait((self._receiving,))
        # What a process that hangs has not taken would be waited for.
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _receive(self) -> None:
        try:
            while True:
                length, number = parse_header(await self._reader.readexactly(HEADER.size))
                self._take(Packet(number, await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError, MalformedMessage):
            return
        finally:
            self.over = True
            for reply in self._waiting.values():
                _fail(reply, EngineUnavailable("the engine process died before it answered; try again soon"))

    def _take(self, packet: Packet) -> None:
        self.heard += 1
        message: Any = packet.message()
        if packet.number == EVENT:
            self._on_event(message)
            return
        reply = self._waiting.get(packet.number)
        if reply is None:  # nobody waits any more
            return
        match message:
            case Done(value) if not reply.done():
                reply.set_result(value)
            case Failed(code, detail):
                _fail(reply, EngineRefused(detail, code=code))


def _fail(reply: asyncio.Future[Value], error: ServiceError) -> None:
    if not reply.done():
        reply.set_exception(error)
