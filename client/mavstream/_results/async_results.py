"""The results of the asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import pyarrow as pa

from mavstream._results.subscription import Subscription
from mavstream._transport.awaiting import AsyncTransport
from mavstream_protocol import Schema
from mavstream_protocol.wire.seams import NotRetained


class AsyncResults:
    """The results of a query: each row once, also across lost connections.

    Iterating yields rows as dicts, with timestamps as text, and goes on where it was left; `batches` and
    `to_arrow` return Arrow.
    """

    def __init__(self, subscription: Subscription, transport: AsyncTransport, timeout: float | None) -> None:
        self._subscription = subscription
        self._transport = transport.with_own_websocket()
        self._timeout = timeout

    @property
    def offset(self) -> int | None:
        """Offset of the last row that was returned; `results(query, after=offset)` goes on behind it."""
        return self._subscription.offset

    @property
    def epoch(self) -> int:
        """A number that grows whenever the query restarts with empty state."""
        return self._subscription.epoch

    @property
    def revision(self) -> int | None:
        """How often the plan was replaced before these rows, as of the last replacement that was told."""
        return self._subscription.revision

    @property
    def not_retained(self) -> tuple[NotRetained, ...]:
        """Rows that the plan of this revision would have needed: windows with such rows are not answered."""
        return self._subscription.not_retained

    @property
    def schema(self) -> Schema | None:
        """The columns; None before the first row was requested."""
        return self._subscription.schema

    @property
    def state(self) -> str | None:
        """How the query has ended; None while it runs."""
        return None if self._subscription.closed is None else self._subscription.closed.state

    async def __aenter__(self) -> AsyncResults:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the position is kept, and iterating reconnects."""
        await self._transport.run(self._subscription.close())

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while (row := self._subscription.pop_row()) is None:
            if not await self._transport.run(self._subscription.fill(self._timeout)):
                raise StopAsyncIteration
        return row

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows as Arrow record batches, as they are received."""
        while True:
            batch = self._subscription.pop_batch()
            if batch is not None:
                yield batch
            elif not await self._transport.run(self._subscription.fill(self._timeout)):
                return

    async def to_arrow(self, limit: int | None = None, timeout: float | None = None) -> pa.Table:
        """Collect rows until there are `limit`, `timeout` seconds have passed, or the query has ended.

        Also until the columns change, because the plan was replaced: the next call returns the rest.
        """
        return await self._transport.run(self._subscription.collect(limit, timeout))

    async def to_pandas(self, limit: int | None = None, timeout: float | None = None) -> Any:
        """Collect rows as `to_arrow` does, into a pandas data frame."""
        return (await self.to_arrow(limit, timeout)).to_pandas()
