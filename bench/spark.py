"""What a generated row costs, from a million rows up: it must not grow with their number.

Small sizes are generated several times and the median counts: a second of another's work on the machine would
be as much as the whole of theirs. `runs_s` has them all.
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
# So many rows are made first, and told apart: with them Java loads its classes and Python its workers.
WARM_UP = 1_000_000
_SMALL = 3_000_000
_RUNS = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--rows",
        type=_rows,
        action="append",
        help="about so many rows; may be repeated (1000000 and 10000000)",
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (local[2])")
    parser.add_argument("--folder", help="where the data goes meanwhile (the system's temporary folder)")


def run(options: argparse.Namespace) -> Outcome:
    """Generate each size and read it again; a size whose rows or checksums are wrong has no figures."""
    sizes = options.rows or [1_000_000, 10_000_000]
    figures: dict[str, Any] = {"master": options.master, "sizes": {}}
    wrong: list[str] = []
    start = time.perf_counter()
    with spark_session(options.master) as spark:
        figures["session_s"] = round(time.perf_counter() - start, 2)
        figures["first_rows"] = _generate(spark, options.folder, WARM_UP)
        for size in sizes:
            try:
                figures["sizes"][str(size)] = _median(spark, options.folder, size)
            except InvalidDataset as error:
                wrong.append(f"{size}: {error}")
    costs = [size["us_per_row"] for size in figures["sizes"].values()]
    figures["largest_to_smallest_cost"] = round(max(costs) / min(costs), 3) if costs else None
    # Python's side of the driver: Java's has its own limit, which no size moves.
    figures["driver_peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return Outcome(figures, _text(figures, wrong), correct=not wrong)


def _median(spark: SparkSession, folder: str | None, rows: int) -> dict[str, Any]:
    runs = [_generate(spark, folder, rows) for _ in range(_RUNS if rows < _SMALL else 1)]
    middle = sorted(runs, key=lambda run: float(run["seconds"]))[len(runs) // 2]
    return {**middle, "runs_s": [run["seconds"] for run in runs]}


def _generate(spark: SparkSession, folder: str | None, rows: int) -> dict[str, Any]:
    homes = max(round(rows / (DAYS * sum(ROWS_A_DAY.values()))), 1)
    place = Path(tempfile.mkdtemp(prefix="mavstream-bench-", dir=folder))
    try:
        start, cpu = time.perf_counter(), os.times()
        made = generate_homes(spark, str(place / "homes"), HomesOptions(homes=homes, days=DAYS))
        wall = time.perf_counter() - start
        dataset = Dataset(spark, str(place / "homes"))
        for name in (*made.streams, "truth"):
            dataset.verify(name)
        return _figures(made.streams, homes, wall, os.times().user - cpu.user, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _figures(streams: Any, homes: int, wall: float, driver_cpu: float, place: Path) -> dict[str, Any]:
    count = sum(data.rows for data in streams.values())
    size = sum(file.stat().st_size for file in place.rglob("*.parquet"))
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


def _text(figures: dict[str, Any], wrong: list[str]) -> str:
    header = ("rows", "seconds", "us per row", "rows/s", "bytes per row", "files", "runs, s")
    names = ("rows", "seconds", "us_per_row", "rows_per_s", "bytes_per_row", "files")
    lines = [[f"{size[name]:,}" for name in names] for size in figures["sizes"].values()]
    ratio = figures["largest_to_smallest_cost"]
    first = figures["first_rows"]
    lines = [
        [*line, ", ".join(map(str, size["runs_s"]))]
        for line, size in zip(lines, figures["sizes"].values(), strict=True)
    ]
    told = [
        f"before: {figures['session_s']} s until the session was there, and {first['seconds']} s "
        f"for its first {first['rows']:,} rows"
    ]
    if ratio is not None:
        told.append(f"dearest row to cheapest: {ratio}")
    return "\n".join([text_table(header, lines), *told, *(f"wrong: {one}" for one in wrong)])


def _rows(text: str) -> int:
    try:
        rows = int(float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"rows are a number, and {text} came") from None
    if rows < 100_000:
        raise argparse.ArgumentTypeError(f"at least 100000 rows are needed, {text} came")
    return rows
