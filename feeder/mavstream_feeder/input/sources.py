"""Sources of rows: the rows of files, handed out as they fall due."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mavstream_feeder.input.files import column_names, row_count
from mavstream_feeder.input.passes import Passes
from mavstream_feeder.input.recordings import Recording
from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.rates import Recorded
from mavstream_protocol import Schema, StreamSpec
from mavstream_protocol.row_files.reading import Reading
from mavstream_protocol.tuples import arrow_schema

_UTC = pa.timestamp("us", "UTC")


class SourcePosition(NamedTuple):
    """How far a source has been read."""

    row: int
    """Rows of the current pass that were taken or skipped."""
    passes: int
    """Completed passes over the files."""


class FileSource:
    """The rows of a file, or of several that are read one after the other, for one stream.

    With `stamp`, the event-time column gets the due times that `take` is given; the file need not have it.
    With `recorded`, a column has the arrival times; unless it is a field of the stream it is not fed.
    """

    def __init__(
        self,
        path: Path | Sequence[Path],
        spec: StreamSpec,
        *,
        loop: bool = False,
        stamp: bool = False,
        limit: int | None = None,
        skip: int = 0,
        recorded: Recorded | None = None,
        period: float | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.paths = (path,) if isinstance(path, Path) else tuple(path)
        self.spec = spec
        schema = spec.schema()
        stamped = spec.event_time if stamp else None
        there = column_names(self.paths[0], reading or Reading()) if self.paths else schema.names
        fields = [field for field in schema if field.name != stamped or field.name in there]
        self._recording: Recording | None = None
        if recorded is not None:
            self._recording = Recording(recorded, spec, period, str(self.paths[0]) if self.paths else "")
            fields += self._recording.extra_fields
        read = Schema(tuple(fields))
        self._layout = arrow_schema(schema)
        # The columns to feed are read first; a column for due times may be missing among them.
        self._fed_columns = [index for index, name in enumerate(read.names) if name in schema.names]
        self._stamp_at = None if stamped is None else schema.names.index(stamped)
        self._stamp_there = stamped in read.names
        self._loop = loop
        self._limit = self._left = limit
        self._skipped = skip
        self._passes = Passes(self.paths, read, loop=loop, skip=skip, reading=reading)
        # Batches with rows that are not taken yet, and how many rows of the first one are taken.
        self._batches: deque[pa.RecordBatch] = deque()
        self._offset = 0
        # Number of batches whose arrival times were returned.
        self._timed = 0
        self.taken = 0
        """Number of rows that were taken."""

    @property
    def name(self) -> str:
        """The path of the file; of several files, their common folder."""
        if len(self.paths) == 1:
            return str(self.paths[0])
        return os.path.commonpath(self.paths) if self.paths else "no file"

    def take(self, due_us: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Take a row for each due time (microseconds since 1970); fewer at the end, None after it."""
        rows = self.peek(due_us)
        if rows is not None:
            self.advance(rows.num_rows)
        return rows

    def peek(self, due_us: NDArray[np.int64], ahead: int = 0) -> pa.RecordBatch | None:
        """Return what `take` would return after `ahead` more rows, without taking it."""
        wanted = len(due_us) if self._left is None else min(len(due_us), self._left - ahead)
        parts = self._parts(self._offset + ahead, wanted)
        if not parts:
            return None
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return self._fed(rows, due_us[: rows.num_rows])

    def advance(self, count: int) -> None:
        """Take rows that `peek` has returned."""
        self.taken += count
        self._offset += count
        if self._left is not None:
            self._left -= count
        while self._batches and self._offset >= self._batches[0].num_rows:
            self._offset -= self._batches.popleft().num_rows
            self._timed = max(self._timed - 1, 0)

    def ahead(self) -> Times | None:
        """Return the next recorded times, in seconds; None at the end."""
        assert self._recording is not None
        if self._timed == len(self._batches) and not self._read():
            return None
        self._timed += 1
        return self._recording.times(self._batches[self._timed - 1], self._passes.done)

    def begin(self) -> float | None:
        """Return the recorded time of the first row, in seconds; None without rows. Call it before `take`."""
        assert self._recording is not None
        return self._recording.begin(self._batches[0]) if self.opened() else None

    def opened(self) -> bool:
        """Open the files and read the first rows; whether there are any. Call it before `take`."""
        return bool(self._batches or self._read()) and self._left != 0

    @property
    def recorded(self) -> bool:
        """Whether it has recorded arrival times."""
        return self._recording is not None

    @property
    def counts_seconds(self) -> bool:
        """Whether recorded times are seconds since the beginning, not timestamps."""
        return self._recording is not None and not self._recording.absolute

    @property
    def over(self) -> bool:
        """Whether there are no more rows; known as soon as the last one is taken."""
        return self._left == 0 or not (self._batches or self._read())

    def position_at(self, taken: int) -> SourcePosition:
        """Return the position in the files after `taken` rows."""
        behind = self._skipped + taken
        rows = self._passes.rows
        return SourcePosition(behind, 0) if not rows else SourcePosition(behind % rows, behind // rows)

    @property
    def total(self) -> int | None:
        """Number of rows in all; None if it is not known."""
        if self._loop:
            return self._limit
        counts = [row_count(path) for path in self.paths]
        if None in counts:
            return self._limit
        left = max(sum(count or 0 for count in counts) - self._skipped, 0)
        return left if self._limit is None else min(left, self._limit)

    def _parts(self, begin: int, wanted: int) -> list[pa.RecordBatch]:
        """Return slices of the batches: `wanted` rows after the first `begin`."""
        parts: list[pa.RecordBatch] = []
        index = 0
        while wanted > 0 and (index < len(self._batches) or self._read()):
            batch = self._batches[index]
            if begin < batch.num_rows:
                parts.append(batch.slice(begin, wanted))
                wanted -= parts[-1].num_rows
            begin = max(begin - batch.num_rows, 0)
            index += 1
        return parts

    def _read(self) -> bool:
        """Read another batch; whether there was one."""
        batch = self._passes.next()
        if batch is not None:
            self._batches.append(batch)
        return batch is not None

    def _fed(self, rows: pa.RecordBatch, due_us: NDArray[np.int64]) -> pa.RecordBatch:
        if len(self._fed_columns) < rows.num_columns:
            rows = rows.select(self._fed_columns)
        if self._stamp_at is None:
            return rows
        put = rows.set_column if self._stamp_there else rows.add_column
        return put(self._stamp_at, self._layout.field(self._stamp_at), self._instants(due_us))

    @staticmethod
    def _instants(due_us: NDArray[np.int64]) -> pa.Array:
        # From the buffer, since `pa.array` would look at each value.
        return pa.Array.from_buffers(_UTC, len(due_us), [None, pa.py_buffer(due_us)])
