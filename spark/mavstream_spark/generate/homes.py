"""Generation of smart homes: the rows of all their sensors, in one Spark job."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mavstream_protocol import StreamSpec
from mavstream_protocol.instants import parse_instant
from mavstream_protocol.manifest import Manifest
from mavstream_spark.datasets.writer import new_dataset
from mavstream_spark.errors import InvalidJob
from mavstream_spark.homes.batches import HomesPlan
from mavstream_spark.homes.rooms import DAY, MICROSECONDS, ROWS_A_DAY, STREAMS, TRUTH
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAY_MICROSECONDS = DAY * MICROSECONDS
# Home-days per task: enough to be worth the start of a task, few enough that no core waits long for another.
_HOME_DAYS_PER_TASK = 25


@dataclass(frozen=True, slots=True)
class HomesOptions:
    """What to generate; the same options give the same rows."""

    homes: int = 100
    days: int = 7
    start: str = "2026-03-01"
    seed: int = 0
    anomalies: float = 0.02
    """The share of home-days on which something goes wrong."""

    def plan(self) -> HomesPlan:
        """Return the home-days to make; raises InvalidJob."""
        if self.homes < 1 or self.days < 1:
            raise InvalidJob(f"{self.homes} homes on {self.days} days have no rows: give at least 1 of each")
        if not 0 <= self.anomalies <= 1:
            raise InvalidJob(f"anomalies must be a share from 0 to 1, got {self.anomalies}")
        if self.seed < 0:
            raise InvalidJob(f"seed must be 0 or more, got {self.seed}")
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
    recorded: dict[str, Any] = asdict(options)
    count = plan.homes * plan.days
    partitions = partitions or max(-(-count // _HOME_DAYS_PER_TASK), spark.sparkContext.defaultParallelism)
    with new_dataset(spark, folder, "homes", recorded, begin=begin, end=end, overwrite=overwrite) as writer:
        with progress.step("homes"):
            rows = {spec: _expected_rows(plan, spec) for spec in (*STREAMS.values(), TRUTH)}
            writer.write_batches(rows, plan.batches, count, partitions)
        writer.truth = writer.streams.pop(TRUTH.name)
        for name, entry in writer.streams.items():
            progress.done(name, entry.summary())
        progress.done(TRUTH.name, f"{writer.truth.rows:,} anomalies")
    return writer.manifest("homes", recorded)


def _expected_rows(plan: HomesPlan, spec: StreamSpec) -> int:
    return plan.homes * plan.days * ROWS_A_DAY.get(spec.name, 1)
