"""The feed of the blocking client."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

from mavstream._convert.tuples import Tuples
from mavstream._feeding.producer import Producer
from mavstream._transport.blocking import BlockingLine


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
        return self._producer.acked(stream)

    def close(self) -> None:
        """Close the connection without waiting for acks."""
        with self._lock:
            self._line.run(self._producer.shut())
