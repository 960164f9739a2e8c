"""The plain workloads of the papers: location, humidity and temperature, at the times of a Poisson process.

A row's time is the dataset's begin plus its arrival offset, so the offsets are precomputed. The process is
made in cells of time that do not know of each other: how many rows a cell has is Poisson, and where they lie
in it is uniform, which together is the same process, whoever makes which cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mavstream_feeder.rates import Rate, parse_rate
from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.instants import parse_instant
from mavstream_protocol.manifest import Manifest
from mavstream_spark.datasets.writer import new_dataset, spark_schema
from mavstream_spark.errors import InvalidJob
from mavstream_spark.homes.draws import draws
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCATIONS = 200
"""How many locations there are; rows choose among them evenly."""
_CELL_ROWS = 20_000
_SECOND = 1_000_000
_FIELDS = (
    FieldSpec(name="at", type=FieldType.TIMESTAMP),
    FieldSpec(name="location", type=FieldType.INT),
    FieldSpec(name="humidity", type=FieldType.INT),
    FieldSpec(name="temperature", type=FieldType.FLOAT),
)


@dataclass(frozen=True, slots=True)
class PlainOptions:
    """What to generate; the same options give the same rows."""

    streams: int = 2
    rate: str = "500@60s"
    """Rows a second of each stream, in pieces that say how long they last."""
    start: str = "2026-03-01"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """A stretch of time in which the rate is constant."""

    begin: float
    """Seconds since the dataset's begin."""
    seconds: float
    per_second: float


def cells_of(rate: Rate) -> list[Cell]:
    """Cut a rate into cells of few rows; where they are cut depends on the rate alone."""
    cells: list[Cell] = []
    begin = 0.0
    for piece in rate.pieces:
        count = max(math.ceil(piece.per_second * piece.seconds / _CELL_ROWS), 1)
        length = piece.seconds / count
        cells += [Cell(begin + place * length, length, piece.per_second) for place in range(count)]
        begin += piece.seconds
    return cells


def read_rate(text: str) -> Rate:
    """Read a rate whose every piece ends; raises InvalidJob (or InvalidRate)."""
    rate = parse_rate(text)
    if not isinstance(rate, Rate) or rate.flat_out or any(math.isinf(piece.seconds) for piece in rate.pieces):
        raise InvalidJob(f"rate '{text}' never ends: say how long each part lasts, such as 500@60s")
    return rate


def generate_plain(
    spark: SparkSession,
    folder: str,
    options: PlainOptions,
    *,
    overwrite: bool = False,
    partitions: int | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write streams `readings1`, `readings2`, ... and return the manifest; raises InvalidJob."""
    if options.streams < 1:
        raise InvalidJob(f"{options.streams} streams are no data: give at least 1")
    rate = read_rate(options.rate)
    progress = progress or Silent()
    try:
        begin = parse_instant(options.start)
    except ValueError as error:
        raise InvalidJob(f"start: {error}") from None
    end = begin + round(sum(piece.seconds for piece in rate.pieces) * _SECOND)
    cells = cells_of(rate)
    expected = round(sum(cell.seconds * cell.per_second for cell in cells))
    parts = min(partitions or max(len(cells) // 20, spark.sparkContext.defaultParallelism), len(cells))
    told = asdict(options)
    with new_dataset(spark, folder, "plain", told, begin=begin, end=end, overwrite=overwrite) as writer:
        for number in range(1, options.streams + 1):
            spec = StreamSpec(name=f"readings{number}", fields=_FIELDS, event_time="at")
            with progress.step(spec.name):
                numbers = spark.range(0, len(cells), 1, parts)
                maker = _batch_maker(options.seed, number, begin, rate)
                rows = numbers.mapInArrow(maker, spark_schema(spec.fields))
                entry = writer.add_stream(spec, rows, expected)
            progress.done(spec.name, entry.summary())
    return writer.manifest("plain", told)


def _batch_maker(
    seed: int, stream: int, begin: int, rate: Rate
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def batches(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cells = cells_of(rate)
        for part in numbers:
            for number in part.column(0).to_pylist():
                yield cell_batch(seed, stream, number, cells[number], begin)

    return batches


def cell_batch(seed: int, stream: int, number: int, cell: Cell, begin: int) -> pa.RecordBatch:
    """Return the rows of one cell."""
    random = draws(seed, "plain", stream, number)
    count = random.poisson(cell.per_second * cell.seconds)
    offsets = np.sort(random.uniform(cell.begin, cell.begin + cell.seconds, count))
    times = pa.array(begin + np.floor(offsets * _SECOND).astype(np.int64)).view(pa.timestamp("us", "UTC"))
    columns = {
        "at": times,
        "location": pa.array(random.integers(1, LOCATIONS + 1, count)),
        "humidity": pa.array(random.integers(0, 101, count)),
        "temperature": pa.array(np.round(random.normal(22, 8, count), 2)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
