"""Sources of rows: a file's batches handed out in the portions that fall due, once or over and over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mavstream_feeder.files import Batches, column_names, read_batches
from mavstream_feeder.problems import UnreadableFile
from mavstream_protocol import Schema, StreamSpec
from mavstream_protocol.tuples import arrow_schema

# Files up to this size are decoded once and kept, so that going round costs nothing.
_KEPT_BYTES = 64 << 20


class FileSource:
    """The rows of a file for one stream.

    With `stamp`, the event-time column holds the due times that `take` is given; the file need not have it.
    """

    def __init__(
        self,
        path: Path,
        spec: StreamSpec,
        *,
        loop: bool = False,
        stamp: bool = False,
        limit: int | None = None,
    ) -> None:
        self._path = path
        self._schema = spec.schema()
        self._stamped = spec.event_time if stamp else None
        self._read = self._schema
        if self._stamped is not None and self._stamped not in column_names(path):
            self._read = Schema(tuple(field for field in self._schema if field.name != self._stamped))
        self._layout = arrow_schema(self._schema)
        # Where each column of a stamped row comes from in the file's row; None is the due time.
        names = self._read.names
        self._order = [None if name == self._stamped else names.index(name) for name in self._schema.names]
        self._loop = loop
        self._left = limit
        self._kept: list[pa.RecordBatch] | None = None
        if loop and path.exists() and path.stat().st_size <= _KEPT_BYTES:
            self._kept = list(read_batches(path, self._read))
        self._batches = self._pass()
        self._batch: pa.RecordBatch | None = None
        self._offset = 0

    def take(self, due_us: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Return a row for each due time (microseconds since 1970); fewer at the end, None after it."""
        wanted = len(due_us) if self._left is None else min(len(due_us), self._left)
        parts: list[pa.RecordBatch] = []
        missing = wanted
        while missing and (part := self._part(missing)) is not None:
            parts.append(part)
            missing -= part.num_rows
        if not parts:
            return None
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if self._left is not None:
            self._left -= rows.num_rows
        return rows if self._stamped is None else self._stamp(rows, due_us[: rows.num_rows])

    @property
    def over(self) -> bool:
        """Whether no row will come again; known as soon as the last one is taken."""
        return self._left == 0 or (self._batch is None and not self._advance())

    def _part(self, most: int) -> pa.RecordBatch | None:
        if self._batch is None and not self._advance():
            return None
        assert self._batch is not None
        part = self._batch.slice(self._offset, most)
        self._offset += part.num_rows
        if self._offset == self._batch.num_rows:
            self._batch = None
        return part

    def _advance(self) -> bool:
        self._offset = 0
        self._batch = next(self._batches, None)
        if self._batch is None and self._loop:
            self._batches = self._pass()
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise UnreadableFile(f"file '{self._path}' has no rows to go round with")
        return self._batch is not None

    def _pass(self) -> Batches:
        return read_batches(self._path, self._read) if self._kept is None else iter(self._kept)

    def _stamp(self, rows: pa.RecordBatch, due_us: NDArray[np.int64]) -> pa.RecordBatch:
        times = pa.array(due_us).view(pa.timestamp("us", "UTC"))
        columns = [times if index is None else rows.column(index) for index in self._order]
        return pa.RecordBatch.from_arrays(columns, schema=self._layout)
