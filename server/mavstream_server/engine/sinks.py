"""Sinks: destinations of a query's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mavstream_server.columns.batch import Batch
from mavstream_server.engine.snapshot import SnapshotMismatch
from mavstream_server.log.writer import LogWriter


class CountingSink:
    """Counts result rows and discards them."""

    def __init__(self) -> None:
        self.offset = 0

    def append(self, batch: Batch, now: int) -> None:
        """Count the rows of a batch."""
        self.offset += batch.size

    def restart(self, offset: int) -> None:
        """Continue at an offset."""
        self.offset = offset


class MemorySink:
    """Stores results as batches in memory, for tests and small tools."""

    def __init__(self) -> None:
        self.offset = 0
        self.batches: list[Batch] = []

    def append(self, batch: Batch, now: int) -> None:
        """Store a batch."""
        self.offset += batch.size
        self.batches.append(batch)

    def restart(self, offset: int) -> None:
        """Continue at an offset; rows from there on are removed, since they will be emitted again."""
        while self.offset > offset:
            last = self.batches.pop()
            self.offset -= last.size
            if self.offset < offset:
                kept, _ = last.split(offset - self.offset)
                self.batches.append(kept)
                self.offset = offset
        self.offset = offset


class ResultLogSink:
    """Appends results to a result log, whose positions are the offsets that subscribers resume from.

    Each frame has the epoch as its producer; `appended` is called after each append.
    """

    def __init__(
        self,
        writer: LogWriter,
        columns: Sequence[str],
        epoch: int = 0,
        appended: Callable[[], None] | None = None,
    ) -> None:
        self._writer = writer
        self._columns = tuple(columns)
        self._epoch = epoch
        self._appended = appended

    @property
    def offset(self) -> int:
        """The offset of the next result row."""
        return self._writer.end

    def append(self, batch: Batch, now: int) -> None:
        """Append the rows of a batch."""
        columns = batch.columns
        if len(columns) != len(self._columns):
            columns = {name: columns[name] for name in self._columns}
        self._writer.append(columns, batch.size, now, producer=self._epoch)
        if self._appended is not None:
            self._appended()

    def restart(self, offset: int) -> None:
        """Continue at an offset, which must be the log's end: subscribers may have read all rows."""
        if offset != self._writer.end:
            raise SnapshotMismatch(
                f"the result log ends at offset {self._writer.end}, the snapshot goes on at {offset}; "
                "restore a snapshot that was taken when the log ended there, or start a new log"
            )
