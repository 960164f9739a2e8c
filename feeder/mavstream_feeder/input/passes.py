"""Passes over files: their batches in order, once or repeatedly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

from mavstream_feeder.errors import UnreadableFile
from mavstream_feeder.input.files import read_batches
from mavstream_protocol import Schema
from mavstream_protocol.row_files.reading import Reading

# Files up to this size are decoded once and kept, so that further passes cost nothing.
_KEPT_BYTES = 64 << 20


class Passes:
    """The batches of files, read one after the other.

    At most one batch is in memory, unless files are small. The first pass skips `skip` rows.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        schema: Schema,
        *,
        loop: bool = False,
        skip: int = 0,
        reading: Reading | None = None,
    ) -> None:
        self._reading = reading or Reading()
        self._paths = tuple(paths)
        self._schema = schema
        self._loop = loop
        self._skip = skip
        self._kept: list[pa.RecordBatch] | None = [] if loop else None
        self._kept_bytes = 0
        self._all_kept = False  # whether all rows of a pass are kept
        self._batches = self._read()
        self._rows = 0
        self.done = 0
        """Completed passes."""
        self.rows: int | None = None
        """Rows of a pass, once one is completed."""

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch, which is not empty; None at the end. Raises UnreadableFile."""
        while (batch := self._next_read()) is not None:
            if self._skip < batch.num_rows:
                rest = batch.slice(self._skip)
                self._skip = 0
                return rest
            self._skip -= batch.num_rows
        return None

    def _next_read(self) -> pa.RecordBatch | None:
        batch = next(self._batches, None)
        if batch is None and self._loop:
            if not self._rows:
                names = ", ".join(f"'{path}'" for path in self._paths)
                raise UnreadableFile(f"file {names} has no rows to repeat")
            self._turn()
            batch = next(self._batches, None)
        if batch is None:
            return None
        self._rows += batch.num_rows
        self._keep(batch)
        return batch

    def _turn(self) -> None:
        self.done += 1
        self.rows, self._rows = self._rows, 0
        self._all_kept = self._kept is not None
        self._batches = self._read() if self._kept is None else iter(self._kept)

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._kept is None or self._all_kept:
            return
        self._kept_bytes += batch.nbytes
        self._kept.append(batch)
        if self._kept_bytes > _KEPT_BYTES:
            self._kept = None

    def _read(self) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(read_batches(path, self._schema, self._reading) for path in self._paths)
