"""Sinks: destinations of a query's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mavstream_protocol.schema import Schema
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.engine.checkpoints.replay import Replay, time_columns
from mavstream_server.engine.snapshot import SnapshotMismatch
from mavstream_server.log.errors import GapError
from mavstream_server.log.format.provenance import encode_provenance, latest_time
from mavstream_server.log.gather import gather_times
from mavstream_server.log.read_batch import ReadBatch
from mavstream_server.log.reader import LogReader
from mavstream_server.log.writer import LogWriter

_READ_ROWS = 65_536  # rows of the result log that are hashed at once


class CountingSink:
    """Counts result rows and discards them."""

    revision = 0

    def __init__(self) -> None:
        self.offset = 0

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        """Count the rows of a batch."""
        self.offset += batch.size

    def change(self, schema: Schema) -> None:
        """Count rows of another schema from here on."""

    def restart(self, offset: int) -> None:
        """Continue at an offset."""
        self.offset = offset


class MemorySink:
    """Stores results as batches in memory, for tests and small tools."""

    revision = 0

    def __init__(self) -> None:
        self.offset = 0
        self.batches: list[Batch] = []
        self.changes: list[tuple[int, Schema]] = []
        """The offsets from which on rows have another schema than before."""

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        """Store a batch with rows."""
        if not batch.size:
            return
        self.offset += batch.size
        self.batches.append(batch)

    def change(self, schema: Schema) -> None:
        """Store rows of another schema from here on."""
        self.changes.append((self.offset, schema))

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

    Each frame has the epoch as its producer and the revision as its sequence. `appended` is called after
    each append.
    """

    def __init__(
        self,
        writer: LogWriter,
        columns: Sequence[str],
        epoch: int = 0,
        revision: int = 0,
        appended: Callable[[], None] | None = None,
    ) -> None:
        self._writer = writer
        self._columns = tuple(columns)
        self._epoch = epoch
        self.revision = revision
        """How often the query's plan was replaced before the rows that are appended now."""
        self._appended = appended

    @property
    def offset(self) -> int:
        """The offset of the next result row."""
        return self._writer.end

    def change(self, schema: Schema) -> None:
        """Append rows of another schema from here on."""
        self._writer.change_schema(schema)
        self._columns = schema.names

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        """Append the rows of a batch and the mark behind them, with their provenance."""
        provenance = encode_provenance(batch, positions)
        columns = batch.columns
        if batch.size and len(columns) != len(self._columns):
            columns = {name: columns[name] for name in self._columns}
        self._writer.append(
            columns,
            batch.size,
            now,
            producer=self._epoch,
            sequence=self.revision,
            provenance=provenance,
            latest=latest_time(batch),
        )
        if batch.size and self._appended is not None:
            self._appended()

    def restart(self, offset: int) -> Replay | None:
        """Continue at an offset; rows from there on stay, since subscribers may have read them.

        Returns these rows, to be struck off as they are computed again.
        """
        begin, end = self._writer.begin, self._writer.end
        if not begin <= offset <= end:
            raise SnapshotMismatch(
                f"the result log has rows {begin} to {end}, the snapshot goes on at {offset}; "
                "restore a snapshot that was taken while the log had that row, or start a new log"
            )
        return None if offset == end else Replay(self._columns, self._stored(offset, end))

    def _stored(self, offset: int, end: int) -> Iterator[tuple[Sequence[Column], int]]:
        """Yield the stored rows from an offset on, in batches."""
        reader = LogReader(self._writer.path, cache_bytes=0)
        try:
            cursor = reader.cursor(offset)
            while cursor.position < end:
                read = ReadBatch(cursor.take(_READ_ROWS))
                if read.rows:
                    columns = list(read.columns(self._columns).values())
                    time, row_watermark = gather_times(read.spans)
                    yield [*columns, *time_columns(time, row_watermark, read.rows)], read.rows
        except GapError as gap:
            raise SnapshotMismatch(f"rows of the result log cannot be read again: {gap}") from None
        finally:
            reader.close()
