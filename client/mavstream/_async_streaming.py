"""Results and feeds of the client that awaits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from mavstream._awaiting import AwaitingLine
from mavstream._producer import Producer
from mavstream._subscription import Subscription
from mavstream._tuples import Tuples
from mavstream_protocol import Schema


class AsyncResults:
    """The answers of a query, each once, across lost connections; iterating again goes on where it was left.

    Iterating gives rows as dicts, with timestamps as text; `batches` and `to_arrow` give Arrow.
    """

    def __init__(self, subscription: Subscription, line: AwaitingLine, timeout: float | None) -> None:
        self._subscription = subscription
        self._line = line.another()
        self._timeout = timeout

    @property
    def offset(self) -> int | None:
        """The offset of the last row given; `results(query, after=offset)` goes on behind it."""
        return self._subscription.offset

    @property
    def epoch(self) -> int:
        """Grows when the query begins anew with empty state."""
        return self._subscription.epoch

    @property
    def schema(self) -> Schema | None:
        """The columns; None before the first row was asked for."""
        return self._subscription.schema

    @property
    def state(self) -> str | None:
        """How the query has ended; None as long as it has not."""
        return None if self._subscription.closed is None else self._subscription.closed.state

    async def __aenter__(self) -> AsyncResults:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the place is kept, and iterating opens it again."""
        await self._line.run(self._subscription.shut())

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while (row := self._subscription.pop_row()) is None:
            if not await self._line.run(self._subscription.fill(self._timeout)):
                raise StopAsyncIteration
        return row

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Give the rows as Arrow record batches, cut as they come."""
        while True:
            batch = self._subscription.pop_batch()
            if batch is not None:
                yield batch
            elif not await self._line.run(self._subscription.fill(self._timeout)):
                return

    async def to_arrow(self, limit: int | None = None, timeout: float | None = None) -> pa.Table:
        """Gather rows until there are `limit`, `timeout` seconds have passed, or the query has ended."""
        return await self._line.run(self._subscription.collect(limit, timeout))

    async def to_pandas(self, limit: int | None = None, timeout: float | None = None) -> Any:
        """Gather rows as `to_arrow` does, into a pandas data frame."""
        return (await self.to_arrow(limit, timeout)).to_pandas()


class AsyncFeed:
    """A producer's rows on their way: `async with client.feed("sensors") as feed: ...`.

    Rows are kept until the server has acked them, so no lost connection loses or doubles one. Leaving the
    block waits for the acks. After a Timeout the rows are still queued: `flush`, do not send them again.
    """

    def __init__(self, producer: Producer, streams: Sequence[str], line: AwaitingLine) -> None:
        self._producer = producer
        self._streams = tuple(streams)
        self._line = line.another()
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> AsyncFeed:
        async with self._lock:
            await self._line.run(self._producer.start(self._streams))
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
        """Send rows, columns, Arrow or a data frame, waiting for credit; returns how many rows."""
        async with self._lock:
            return await self._line.run(self._producer.send(stream, tuples))

    async def flush(self) -> None:
        """Wait until every row is acked; raises Rejected for rows that were not taken."""
        async with self._lock:
            await self._line.run(self._producer.flush())

    async def end(self, stream: str) -> None:
        """Say that this producer sends no more rows of a stream, so that it holds no window open."""
        async with self._lock:
            await self._line.run(self._producer.end(stream))

    def acked(self, stream: str) -> int:
        """Return the number of the last frame in the log; a producer's frames of a stream count from 1."""
        return self._producer.lanes[stream].acked

    async def close(self) -> None:
        """Close the connection without waiting for acks."""
        async with self._lock:
            await self._line.run(self._producer.shut())
