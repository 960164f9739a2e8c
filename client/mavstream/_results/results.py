"""The results of the blocking client."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pyarrow as pa

from mavstream._results.subscription import Subscription
from mavstream._transport.blocking import BlockingTransport
from mavstream_protocol import Schema
from mavstream_protocol.wire.seams import NotRetained


class Results:
    """The results of a query: each row once, also across lost connections.

    Iterating yields rows as dicts, with timestamps as text, and goes on where it was left; `batches` and
    `to_arrow` return Arrow.
    """

    def __init__(
        self, subscription: Subscription, transport: BlockingTransport, timeout: float | None
    ) -> None:
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

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the position is kept, and iterating reconnects."""
        self._transport.run(self._subscription.close())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        while (row := self._subscription.pop_row()) is None:
            if not self._transport.run(self._subscription.fill(self._timeout)):
                raise StopIteration
        return row

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow record batches, as they are received."""
        while True:
            batch = self._subscription.pop_batch()
            if batch is not None:
                yield batch
            elif not self._transport.run(self._subscription.fill(self._timeout)):
                return

    def to_arrow(self, limit: int | None = None, timeout: float | None = None) -> pa.Table:
        """Collect rows until there are `limit`, `timeout` seconds have passed, or the query has ended.

        Also until the columns change, because the plan was replaced: the next call returns the rest.
        """
        return self._transport.run(self._subscription.collect(limit, timeout))

    def to_pandas(self, limit: int | None = None, timeout: float | None = None) -> Any:
        """Collect rows as `to_arrow` does, into a pandas data frame."""
        return self.to_arrow(limit, timeout).to_pandas()
