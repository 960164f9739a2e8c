"""Results and feeds of the client that blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from mavstream._blocking import BlockingLine
from mavstream._producer import Producer
from mavstream._subscription import Subscription
from mavstream._tuples import Tuples
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


class Feed:
    """A producer's rows on their way: `with client.feed("sensors") as feed: feed.send("readings", rows)`.

    Rows are kept until the server has acked them, so no lost connection loses or doubles one. Leaving the
    block waits for the acks. After a Timeout the rows are still queued: `flush`, do not send them again.
    """

    def __init__(self, producer: Producer, streams: Sequence[str], line: BlockingLine) -> None:
        self._producer = producer
        self._streams = tuple(streams)
        self._line = line.another()
        self._lock = threading.RLock()

    def __enter__(self) -> Feed:
        with self._lock:
            self._line.run(self._producer.start(self._streams))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def send(self, stream: str, tuples: Tuples) -> int:
        """Send rows, columns, Arrow or a data frame, waiting for credit; returns how many rows."""
        with self._lock:
            return self._line.run(self._producer.send(stream, tuples))

    def flush(self) -> None:
        """Wait until every row is acked; raises Rejected for rows that were not taken."""
        with self._lock:
            self._line.run(self._producer.flush())

    def end(self, stream: str) -> None:
        """Say that this producer sends no more rows of a stream, so that it holds no window open."""
        with self._lock:
            self._line.run(self._producer.end(stream))

    def acked(self, stream: str) -> int:
        """Return the number of the last frame in the log; a producer's frames of a stream count from 1."""
        return self._producer.lanes[stream].acked

    def close(self) -> None:
        """Close the connection without waiting for acks."""
        with self._lock:
            self._line.run(self._producer.shut())
