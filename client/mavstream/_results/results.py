"""The results of the blocking client."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pyarrow as pa

from mavstream._results.subscription import Subscription
from mavstream._transport.blocking import BlockingLine
from mavstream_protocol import Schema


class Results:
    """The answers of a query, each once, across lost connections; iterating again goes on where it was left.

    Iterating gives rows as dicts, with timestamps as text; `batches` and `to_arrow` give Arrow.
    """

    def __init__(self, subscription: Subscription, line: BlockingLine, timeout: float | None) -> None:
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

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the place is kept, and iterating opens it again."""
        self._line.run(self._subscription.shut())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        while (row := self._subscription.pop_row()) is None:
            if not self._line.run(self._subscription.fill(self._timeout)):
                raise StopIteration
        return row

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows as Arrow record batches, cut as they come."""
        while True:
            batch = self._subscription.pop_batch()
            if batch is not None:
                yield batch
            elif not self._line.run(self._subscription.fill(self._timeout)):
                return

    def to_arrow(self, limit: int | None = None, timeout: float | None = None) -> pa.Table:
        """Gather rows until there are `limit`, `timeout` seconds have passed, or the query has ended."""
        return self._line.run(self._subscription.collect(limit, timeout))

    def to_pandas(self, limit: int | None = None, timeout: float | None = None) -> Any:
        """Gather rows as `to_arrow` does, into a pandas data frame."""
        return self.to_arrow(limit, timeout).to_pandas()
