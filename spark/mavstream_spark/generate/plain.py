"""Generation of the plain workloads of the papers: location, humidity and temperature as a Poisson process.

A row's time is the begin of the dataset plus its arrival offset. The process is made in cells of time that
are independent of each other: the number of rows in a cell is Poisson and their times in it are uniform,
which together is the same process, whichever task makes which cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mavstream_feeder.pacing.rates import Rate, parse_rate
from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.instants import parse_instant
from mavstream_protocol.manifest import Manifest
from mavstream_spark.datasets.batch_writer import MakeBatches
from mavstream_spark.datasets.writer import new_dataset
from mavstream_spark.errors import InvalidJob
from mavstream_spark.homes.draws import draws
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCATIONS = 200
"""The number of locations, which are uniformly distributed."""
_CELL_ROWS = 20_000
_CELLS_PER_TASK = 20
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
    """Rows a second of each stream, piece by piece with the length of each."""
    start: str = "2026-03-01"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """A span of time in which the rate is constant."""

    begin: float
    """Seconds since the begin of the dataset."""
    seconds: float
    per_second: float


def cells_of(rate: Rate) -> list[Cell]:
    """Divide a rate into cells of few rows; the division depends on the rate alone."""
    cells: list[Cell] = []
    begin = 0.0
    for piece in rate.pieces:
        count = max(math.ceil(piece.per_second * piece.seconds / _CELL_ROWS), 1)
        length = piece.seconds / count
        cells += [Cell(begin + index * length, length, piece.per_second) for index in range(count)]
        begin += piece.seconds
    return cells


def read_rate(text: str) -> Rate:
    """Parse a rate whose every piece ends; raises InvalidJob or InvalidRate."""
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
        raise InvalidJob(f"streams must be 1 or more, got {options.streams}")
    rate = read_rate(options.rate)
    progress = progress or Silent()
    try:
        begin = parse_instant(options.start)
    except ValueError as error:
        raise InvalidJob(f"start: {error}") from None
    end = begin + round(sum(piece.seconds for piece in rate.pieces) * _SECOND)
    cells = cells_of(rate)
    names = [f"readings{number}" for number in range(1, options.streams + 1)]
    count = len(names) * len(cells)
    partitions = partitions or max(count // _CELLS_PER_TASK, spark.sparkContext.defaultParallelism)
    expected = round(sum(cell.seconds * cell.per_second for cell in cells))
    rows = {StreamSpec(name=name, fields=_FIELDS, event_time="at"): expected for name in names}
    recorded = asdict(options)
    with new_dataset(spark, folder, "plain", recorded, begin=begin, end=end, overwrite=overwrite) as writer:
        with progress.step("readings"):
            writer.write_batches(rows, _batch_maker(options.seed, begin, rate), count, partitions)
        for name, entry in writer.streams.items():
            progress.done(name, entry.summary())
    return writer.manifest("plain", recorded)


def _batch_maker(seed: int, begin: int, rate: Rate) -> MakeBatches:
    cells = cells_of(rate)

    def batches(number: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        stream, index = number // len(cells) + 1, number % len(cells)
        yield f"readings{stream}", cell_batch(seed, stream, index, cells[index], begin)

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
