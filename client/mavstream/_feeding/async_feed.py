"""The feed of the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from mavstream._convert.tuples import Tuples
from mavstream._feeding.producer import Producer
from mavstream._transport.awaiting import AsyncTransport


class AsyncFeed:
    """Sends rows as a named producer: `async with client.feed("sensors") as feed: ...`.

    Rows are kept until the server has acknowledged them, and sent again after a reconnect, so that none is
    lost or duplicated. Leaving the block waits for all acknowledgements. After a Timeout the rows are still
    queued: call `flush`, do not send them again.
    """

    def __init__(self, producer: Producer, streams: Sequence[str], transport: AsyncTransport) -> None:
        self._producer = producer
        self._streams = tuple(streams)
        self._transport = transport.with_own_websocket()
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> AsyncFeed:
        async with self._lock:
            await self._transport.run(self._producer.start(self._streams))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def send(self, stream: str, tuples: Tuples) -> int:
        """Send rows, columns, Arrow or a data frame; waits for credit and returns the number of rows."""
        async with self._lock:
            return await self._transport.run(self._producer.send(stream, tuples))

    async def flush(self) -> None:
        """Wait until every row is acknowledged; raises Rejected for rows that the server refused."""
        async with self._lock:
            await self._transport.run(self._producer.flush())

    async def end(self, stream: str) -> None:
        """Say that this producer sends no more rows of a stream, so that it keeps no window open."""
        async with self._lock:
            await self._transport.run(self._producer.end(stream))

    def acked(self, stream: str) -> int:
        """Return the sequence number of the last acknowledged frame of a stream; frames count from 1."""
        return self._producer.acked(stream)

    async def close(self) -> None:
        """Close the connection without waiting for acknowledgements."""
        async with self._lock:
            await self._transport.run(self._producer.close())
