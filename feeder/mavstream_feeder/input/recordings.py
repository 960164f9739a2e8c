"""Recorded arrival times, from a column of the file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mavstream_feeder.errors import UnreadableFile
from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.rates import Recorded
from mavstream_protocol import FieldType, StreamSpec
from mavstream_protocol.schema import Field

_MICROSECONDS = 1e6


class Recording:
    """Arrival times of the rows of a file: a field of the stream, or another column with seconds.

    A further pass follows after `period` seconds; without one, a mean gap after the last row of the pass
    before.
    """

    def __init__(self, rate: Recorded, spec: StreamSpec, period: float | None, file: str) -> None:
        column = rate.column or spec.event_time
        if column is None:
            raise UnreadableFile(
                f"stream '{spec.name}' has no event time, so the arrival times of '{file}' are not known: "
                "name the column with the seconds, as in --rate recorded:arrival_offset"
            )
        self.column = column
        self._file = file
        self._period = period
        self._known = spec.schema().get(column)
        self.extra_fields: tuple[Field, ...] = ()
        """The column to read besides the fields of the stream, if any."""
        if self._known is None:
            self.extra_fields = (Field(column, FieldType.FLOAT),)
        elif self._known.type not in (FieldType.TIMESTAMP, FieldType.INT, FieldType.FLOAT):
            raise UnreadableFile(
                f"column '{column}' of stream '{spec.name}' is of type {self._known.type}: recorded arrivals "
                "are a timestamp or a number of seconds"
            )
        self._pass = 0
        self._shift = 0.0
        # Of the pass so far: its first and last time, and the number of rows.
        self._first = self._last = 0.0
        self._rows = 0

    @property
    def absolute(self) -> bool:
        """Whether the column has timestamps instead of seconds since the beginning."""
        return self._known is not None and self._known.type is FieldType.TIMESTAMP

    def begin(self, batch: pa.RecordBatch) -> float:
        """Return the time of the first row of a batch."""
        return float(self._seconds(batch.slice(0, 1))[0])

    def times(self, batch: pa.RecordBatch, number: int) -> Times:
        """Return the times of the next batch, which belongs to pass `number`, counted from 0."""
        seconds = self._seconds(batch)
        if number != self._pass:
            self._pass = number
            self._shift += self._length()
            self._rows = 0
        if not self._rows:
            self._first = float(seconds[0])
        self._rows += len(seconds)
        self._last = float(seconds[-1])
        return seconds + self._shift

    def _length(self) -> float:
        if self._period is not None:
            return self._period
        span = self._last - self._first
        return span + span / max(self._rows - 1, 1)

    def _seconds(self, batch: pa.RecordBatch) -> Times:
        column = batch.column(batch.schema.get_field_index(self.column))
        if column.null_count:
            raise UnreadableFile(
                f"column '{self.column}' of file '{self._file}' is null in some rows: give "
                "each row an arrival time, or name another column"
            )
        if not self.absolute:
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False)) / _MICROSECONDS
