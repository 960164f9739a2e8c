"""Queues: the batches between two operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from mavstream_server.columns.batch import Batch, mark_only


class QueueAccount:
    """Rows and bytes in all queues of a query."""

    __slots__ = ("nbytes", "rows", "slowed")

    def __init__(self) -> None:
        self.rows = 0
        self.nbytes = 0
        self.slowed = False
        """Whether the query is to read nothing, since another query is too far behind in its results."""

    def has_room(self, most: int) -> bool:
        """Return whether the query may read more rows, with room for `most` in its queues."""
        return self.rows < most and not self.slowed


def _ignore() -> None:
    """Do nothing: the default callback."""


class Queue:
    """Batches in stream order, with their rows and bytes accounted, and callbacks for pushes.

    `filled` is called when a batch is pushed to an empty queue, `grown`, where it is set, when one is pushed
    to a queue that is not empty. Where `receive` is set, operators are fused: a batch that finds the queue
    empty is not queued, but processed by the reader at once. `drained` is called once, when the last batch is
    popped: by then the operator that writes to the queue may continue. They are assigned after construction,
    since pushing is a hot path: by the tasks on both ends, and while batches are moved from one queue to
    another.
    """

    __slots__ = (
        "_account",
        "_batches",
        "cut",
        "drained",
        "filled",
        "grown",
        "nbytes",
        "receive",
        "rows",
        "takes_watermarks",
    )

    def __init__(self, account: QueueAccount) -> None:
        self._account = account
        self._batches: deque[Batch] = deque()
        self.rows = 0
        self.nbytes = 0
        self.cut = 0
        """Rows of the first batch that were popped already, while the rest of it is still queued."""
        self.filled: Callable[[], None] = _ignore
        self.grown: Callable[[], None] | None = None
        self.receive: Callable[[Batch], None] | None = None
        self.drained: Callable[[], None] | None = None
        self.takes_watermarks = True
        """Whether the reader, or an operator above it, acts on a watermark before the next rows come."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def oldest(self) -> int | None:
        """Arrival time (UTC, ns) of the first queued row, or None."""
        for batch in self._batches:
            if batch.size:
                return int(batch.arrival[0])
        return None

    def push(self, batch: Batch) -> None:
        """Hand a batch to a fused reader, or append it."""
        if self.receive is not None and not self._batches:
            self.receive(batch)
        else:
            self.append(batch)

    def append(self, batch: Batch) -> None:
        """Append a batch; a mark that follows a mark directly replaces it."""
        batches = self._batches
        if not batches:
            batches.append(batch)
            self._count(batch.size, batch.nbytes)
            self.filled()
            return
        if not batch.size and _supersedes(batch, batches[-1]):
            batches[-1] = _with_arrival_of(batches[-1], batch)
            return
        batches.append(batch)
        self._count(batch.size, batch.nbytes)
        if self.grown is not None:
            self.grown()

    def pop(self, most: int | None = None) -> Batch:
        """Remove and return the first batch, or its first `most` rows."""
        batch = self._batches.popleft()
        if most is not None and batch.size > most:
            batch, rest = batch.split(most)
            self._batches.appendleft(rest)
            self.cut += most
        else:
            self.cut = 0
        self._count(-batch.size, -batch.nbytes)
        if self.drained is not None and not self._batches:
            drained, self.drained = self.drained, None
            drained()
        return batch

    def clear(self) -> None:
        """Drop all batches, for example when a query is stopped."""
        self._batches.clear()
        self.cut = 0
        self._count(-self.rows, -self.nbytes)

    def _count(self, rows: int, nbytes: int) -> None:
        self.rows += rows
        self.nbytes += nbytes
        self._account.rows += rows
        self._account.nbytes += nbytes


def _with_arrival_of(older: Batch, newer: Batch) -> Batch:
    """Return the newer mark with the arrival of the older one, so that latency is not underestimated."""
    if newer.mark is None or older.mark is None:
        return newer
    return mark_only(newer.mark._replace(arrival=older.mark.arrival))


def _supersedes(batch: Batch, tail: Batch) -> bool:
    return (
        not tail.size
        and batch.mark is not None
        and batch.mark.gap is None
        and (tail.mark is None or (tail.mark.gap is None and not tail.mark.end))
    )
