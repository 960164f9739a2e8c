"""Time per generated row of homes, from a million rows up: it must not grow with the number of rows.

Small sizes are generated several times and the median counts, because a second of other work on the machine
would double their time. `runs_s` has all runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.outcome import Outcome, text_table
from mavstream_protocol.manifest import InvalidDataset
from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.generate.homes import HomesOptions, generate_homes
from mavstream_spark.homes.rooms import ROWS_A_DAY
from mavstream_spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 7
# Rows generated first and reported apart: Java loads its classes, Python starts its workers.
WARM_UP = 1_000_000
_SMALL = 3_000_000
_RUNS = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--rows",
        type=_rows,
        action="append",
        help="about how many rows; may be repeated (1000000 and 10000000)",
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (local[2])")
    parser.add_argument("--folder", help="folder for the data (the system's temporary folder)")


def run(options: argparse.Namespace) -> Outcome:
    """Generate each size and verify it; a size whose rows or checksums are wrong has no metrics."""
    sizes = options.rows or [1_000_000, 10_000_000]
    metrics: dict[str, Any] = {"master": options.master, "sizes": {}}
    wrong: list[str] = []
    start = time.perf_counter()
    with spark_session(options.master) as spark:
        metrics["session_s"] = round(time.perf_counter() - start, 2)
        metrics["first_rows"] = _generate(spark, options.folder, WARM_UP)
        for size in sizes:
            try:
                metrics["sizes"][str(size)] = _median(spark, options.folder, size)
            except InvalidDataset as error:
                wrong.append(f"{size}: {error}")
    costs = [size["us_per_row"] for size in metrics["sizes"].values()]
    metrics["largest_to_smallest_cost"] = round(max(costs) / min(costs), 3) if costs else None
    # The Python process of the driver only; Java's heap has a fixed limit.
    metrics["driver_peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return Outcome(metrics, _text(metrics, wrong), correct=not wrong)


def _median(spark: SparkSession, folder: str | None, rows: int) -> dict[str, Any]:
    runs = [_generate(spark, folder, rows) for _ in range(_RUNS if rows < _SMALL else 1)]
    middle = sorted(runs, key=lambda run: float(run["seconds"]))[len(runs) // 2]
    return {**middle, "runs_s": [run["seconds"] for run in runs]}


def _generate(spark: SparkSession, folder: str | None, rows: int) -> dict[str, Any]:
    homes = max(round(rows / (DAYS * sum(ROWS_A_DAY.values()))), 1)
    directory = Path(tempfile.mkdtemp(prefix="mavstream-bench-", dir=folder))
    try:
        start, cpu = time.perf_counter(), os.times()
        made = generate_homes(spark, str(directory / "homes"), HomesOptions(homes=homes, days=DAYS))
        wall = time.perf_counter() - start
        dataset = Dataset(spark, str(directory / "homes"))
        for name in (*made.streams, "truth"):
            dataset.verify(name)
        return _metrics(made.streams, homes, wall, os.times().user - cpu.user, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _metrics(streams: Any, homes: int, wall: float, driver_cpu: float, directory: Path) -> dict[str, Any]:
    count = sum(data.rows for data in streams.values())
    size = sum(file.stat().st_size for file in directory.rglob("*.parquet"))
    return {
        "rows": count,
        "homes": homes,
        "days": DAYS,
        "seconds": round(wall, 2),
        "us_per_row": round(wall / count * 1e6, 3),
        "rows_per_s": round(count / wall),
        "bytes_per_row": round(size / count, 2),
        "files": sum(len(data.files) for data in streams.values()),
        "driver_cpu_s": round(driver_cpu, 2),
        "verified": True,
    }


def _text(metrics: dict[str, Any], wrong: list[str]) -> str:
    header = ("rows", "seconds", "us per row", "rows/s", "bytes per row", "files", "runs, s")
    names = ("rows", "seconds", "us_per_row", "rows_per_s", "bytes_per_row", "files")
    lines = [[f"{size[name]:,}" for name in names] for size in metrics["sizes"].values()]
    ratio = metrics["largest_to_smallest_cost"]
    first = metrics["first_rows"]
    lines = [
        [*line, ", ".join(map(str, size["runs_s"]))]
        for line, size in zip(lines, metrics["sizes"].values(), strict=True)
    ]
    notes = [
        f"before: {metrics['session_s']} s to start the session and {first['seconds']} s for its first "
        f"{first['rows']:,} rows"
    ]
    if ratio is not None:
        notes.append(f"largest to smallest cost per row: {ratio}")
    return "\n".join([text_table(header, lines), *notes, *(f"wrong: {one}" for one in wrong)])


def _rows(text: str) -> int:
    try:
        rows = int(float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"rows must be a number, got {text}") from None
    if rows < 100_000:
        raise argparse.ArgumentTypeError(f"rows must be at least 100000, got {text}")
    return rows
