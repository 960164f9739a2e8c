"""The data that all benchmarks share: seeded sensor readings, written to stream logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.tuples import arrow_schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.arrow import arrow_from_columns
from mavstream_server.columns.column import Array, Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.core.clock import SystemClock
from mavstream_server.log import FrameKind, LogDescription, LogReader, LogWriter

TUPLES = 1_000_000
RATE = 10_000
"""Tuples per second of event time."""
SENSORS = 1000
LOCATIONS = 20
EVENT_TIME = "ts"
SCHEMA = Schema(
    (
        Field("ts", FieldType.TIMESTAMP),
        Field("sensor_id", FieldType.INT),
        Field("location", FieldType.STRING),
        Field("temperature", FieldType.INT),
        Field("humidity", FieldType.INT),
    )
)
FIELDS = [{"name": field.name, "type": field.type.value} for field in SCHEMA]
"""The same fields as a server receives them."""
BEGIN = 1_700_000_000_000_000
"""Event time at which readings begin, in microseconds."""
_LETTERS = 12


@dataclass(frozen=True, slots=True)
class Stream:
    """A complete stream in a log of its own. Small, since it is handed to other processes."""

    name: str
    path: Path
    size: int
    seed: int

    @property
    def shape(self) -> StreamShape:
        """The schema and event time, as inference needs them."""
        return StreamShape(SCHEMA, EVENT_TIME)

    def reader(self) -> LogReader:
        """Return a reader that has decoded nothing yet, so that every run includes decoding."""
        return LogReader(self.path)

    def arrow(self) -> pa.Table:
        """Return the rows as a table, generated again from the seed; times are plain microseconds."""
        return pa.table({name: plain(column) for name, column in readings(self.size, self.seed).items()})


def readings(size: int, seed: int) -> dict[str, Column]:
    """Return so many readings in order of time: Poisson arrivals, everything else uniform."""
    random = np.random.default_rng(seed)
    gaps = random.exponential(1_000_000 / RATE, size)
    letters = random.integers(ord("a"), ord("z") + 1, (LOCATIONS, _LETTERS))
    locations = Dictionary("".join(map(chr, word)) for word in letters.tolist())
    return {
        "ts": Column(BEGIN + np.cumsum(gaps).astype(np.int64)),
        "sensor_id": Column(random.integers(0, SENSORS, size)),
        "location": Column(random.integers(0, LOCATIONS, size, dtype=np.int32), None, locations),
        "temperature": Column(random.integers(0, 41, size)),
        "humidity": Column(random.integers(0, 101, size)),
    }


def arrow_readings(size: int, seed: int) -> pa.RecordBatch:
    """Return so many readings as a record batch, as it travels."""
    return arrow_from_columns(readings(size, seed), SCHEMA).cast(arrow_schema(SCHEMA))


def stamped(batch: pa.RecordBatch, microseconds: np.ndarray) -> pa.RecordBatch:
    """Return readings with these event times instead of their own."""
    stamps = pa.array(microseconds.astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
    return batch.set_column(0, batch.schema.field(0), stamps)


def write_stream(directory: Path, name: str, size: int, seed: int, frame_rows: int) -> Stream:
    """Write readings to a new log in frames of a given number of rows, and mark the stream complete."""
    columns = readings(size, seed)
    path = directory / name
    with LogWriter(path, LogDescription(SCHEMA, EVENT_TIME)) as writer:
        for start in range(0, size, frame_rows):
            stop = min(start + frame_rows, size)
            frame = {field: column.slice(start, stop) for field, column in columns.items()}
            writer.append(frame, stop - start, SystemClock.now())
        writer.mark(FrameKind.COMPLETE, SystemClock.now())
    return Stream(name, path, size, seed)


def plain(column: Column) -> Array:
    """Return values without nulls as an array: texts instead of codes."""
    if column.dictionary is None:
        return column.values
    return np.array(column.dictionary.values, dtype=object).take(column.values)
