"""Generation of smart-home data: all sensors of all homes, in one job where Python's workers can write."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mavstream_protocol import StreamSpec
from mavstream_protocol.instants import parse_instant
from mavstream_protocol.manifest import Manifest
from mavstream_spark.datasets.writer import DatasetWriter, new_dataset, spark_schema
from mavstream_spark.errors import InvalidJob
from mavstream_spark.homes.batches import HomesPlan, batch_maker
from mavstream_spark.homes.rooms import DAY, MICROSECONDS, ROWS_A_DAY, STREAMS, TRUTH
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_DAY_MICROSECONDS = DAY * MICROSECONDS
# A task makes so many homes and days: long enough to be worth starting, short enough to show progress.
_PAIRS_A_TASK = 25


@dataclass(frozen=True, slots=True)
class HomesOptions:
    """What to generate; the same options give the same rows."""

    homes: int = 100
    days: int = 7
    start: str = "2026-03-01"
    seed: int = 0
    anomalies: float = 0.02
    """The share of days of a home on which something goes wrong."""

    def plan(self) -> HomesPlan:
        """Return the homes and days to make; raises InvalidJob."""
        if self.homes < 1 or self.days < 1:
            raise InvalidJob(f"{self.homes} homes on {self.days} days are no data: give at least 1 of each")
        if not 0 <= self.anomalies <= 1:
            raise InvalidJob(f"anomalies are a share of days, and {self.anomalies} came: give 0 to 1")
        if self.seed < 0:
            raise InvalidJob(f"seed {self.seed} is negative: give 0 or more")
        try:
            start = parse_instant(self.start)
        except ValueError as error:
            raise InvalidJob(f"start: {error}") from None
        if start % _DAY_MICROSECONDS:
            raise InvalidJob(f"start '{self.start}' is not a midnight: give a date such as 2026-03-01")
        return HomesPlan(self.seed, self.homes, start // _DAY_MICROSECONDS, self.days, self.anomalies)


def generate_homes(
    spark: SparkSession,
    folder: str,
    options: HomesOptions,
    *,
    overwrite: bool = False,
    partitions: int | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write a dataset of smart homes and return its manifest; `partitions` never changes the rows."""
    plan = options.plan()
    progress = progress or Silent()
    begin = plan.first_day * _DAY_MICROSECONDS
    end = begin + plan.days * _DAY_MICROSECONDS
    told: dict[str, Any] = asdict(options)
    with new_dataset(spark, folder, "homes", told, begin=begin, end=end, overwrite=overwrite) as writer:
        count = plan.homes * plan.days
        parts = partitions or max(-(-count // _PAIRS_A_TASK), spark.sparkContext.defaultParallelism)
        parts = min(parts, count)
        if writer.local_folder is None:
            _stream_by_stream(writer, spark.range(0, count, 1, parts), plan, progress)
        else:
            _together(writer, spark.sparkContext.range(0, count, 1, parts), plan, progress)
    return writer.manifest("homes", told)


def _together(writer: DatasetWriter, pairs: RDD[int], plan: HomesPlan, progress: Progress) -> None:
    with progress.step("homes"):
        entries = writer.write_streams(
            {spec: _expected(plan, spec) for spec in (*STREAMS.values(), TRUTH)}, pairs, plan.batches
        )
    writer.truth = entries.pop(TRUTH.name)
    writer.streams = entries
    for name, entry in entries.items():
        progress.done(name, entry.summary())
    progress.done("truth", f"{writer.truth.rows:,} anomalies")


def _stream_by_stream(writer: DatasetWriter, pairs: DataFrame, plan: HomesPlan, progress: Progress) -> None:
    for name, spec in STREAMS.items():
        with progress.step(name):
            entry = writer.add_stream(spec, _rows(pairs, plan, spec), _expected(plan, spec))
        progress.done(name, entry.summary())
    with progress.step("truth"):
        writer.truth = writer.write_stream(TRUTH, _rows(pairs, plan, TRUTH), _expected(plan, TRUTH))
    progress.done("truth", f"{writer.truth.rows:,} anomalies")


def _expected(plan: HomesPlan, spec: StreamSpec) -> int:
    return plan.homes * plan.days * ROWS_A_DAY.get(spec.name, 1)


def _rows(pairs: DataFrame, plan: HomesPlan, spec: StreamSpec) -> DataFrame:
    return pairs.mapInArrow(batch_maker(plan, spec.name), spark_schema(spec.fields))
