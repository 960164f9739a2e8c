"""Spark's reads of a stream beside those of files, and queries with backend `spark` beside plain ones.

Both sources are read by the same session and the same queries: rows through a condition, and an average per
room and window. Latency is from the time at which rows are there (appended, or their file renamed) to the
end of the micro-batch that has counted them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bench.data import spark_queries
from bench.outcome import Outcome, text_table
from mavstream import Client
from mavstream.testing import start_server
from mavstream_spark import register
from mavstream_spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "readings"
FIELDS = [
    {"name": "at", "type": "timestamp"},
    {"name": "room", "type": "string"},
    {"name": "temperature", "type": "float"},
]
ROOMS = 50
_BEGIN = 1_767_225_600_000_000
_FEW = 1_000
"""Rows of a round of latency."""
_PATIENCE_S = 30.0

Query = Callable[["DataFrame"], "DataFrame"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows that are read (1000000)")
    parser.add_argument("--batch", type=int, default=200_000, help="rows of a micro-batch (200000)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of latency (20)")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds after which rounds end (150)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs to read (local[2])")
    parser.add_argument(
        "--only",
        choices=("sources", "queries"),
        help="measure only reading, or only queries with backend spark",
    )
    parser.add_argument(
        "--executors", type=int, nargs="+", default=[1, 2], help="executors of the queries (1 2)"
    )


def run(options: argparse.Namespace) -> Outcome:
    """Measure both sources, then queries; wrong if rows are missing or too many, or an answer is wrong."""
    metrics: dict[str, Any] = {"rows": options.rows, "batch": options.batch}
    texts: list[str] = []
    correct = True
    if options.only != "queries":
        metrics["sources"], correct = _measure_sources(options)
        texts.append(_text(metrics["sources"]))
    if options.only != "sources":
        metrics["queries"], right = _measure_queries(options)
        texts.append(text_table(spark_queries.HEADER, spark_queries.text_lines(metrics["queries"])))
        correct = correct and right
    return Outcome(metrics, "\n\n".join(texts), correct)


def _measure_queries(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    found, correct = {}, True
    with start_server() as url, Client(url, timeout=60) as client:
        for executors in options.executors:
            found[str(executors)], right = spark_queries.measure(
                client, url, options.rows, options.batch, options.rounds, executors
            )
            correct = correct and right
    return found, correct


def _measure_sources(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    until = time.monotonic() + options.limit
    with (
        tempfile.TemporaryDirectory(prefix="mavstream-bench-") as folder,
        start_server() as url,
        Client(url, timeout=60) as client,
        spark_session(options.master) as spark,
    ):
        register(spark)
        sources: list[_Source] = [
            _Server(spark, client, url, options.batch),
            _Files(spark, Path(folder)),
        ]
        for start in range(0, options.rows, options.batch):
            for source in sources:
                source.add(_rows(start, min(start + options.batch, options.rows)))
        metrics: dict[str, Any] = {}
        correct = True
        for source in sources:
            drained = {name: _drain(source, query) for name, query in _QUERIES.items()}
            rounds = _latencies(source, options.rows, options.rounds, until)
            expected = options.rows + (rounds["rounds"] + 1) * _FEW
            correct = correct and all(one["input"] == options.rows for one in drained.values())
            correct = correct and rounds["counted"] == expected
            metrics[source.name] = {**drained, "latency_ms": rounds}
    return metrics, correct


def _condition(rows: DataFrame) -> DataFrame:
    return rows.where("temperature > 50").selectExpr("at", "room", "temperature * 1.8 + 32 AS fahrenheit")


def _averages(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import avg, col, window

    windows = rows.withWatermark("at", "1 second").groupBy(window(col("at"), "10 seconds"), col("room"))
    return windows.agg(avg("temperature"))


_QUERIES: dict[str, Query] = {"condition": _condition, "averages": _averages}


class _Source(Protocol):
    """A source, and how rows get there."""

    name: str

    def add(self, rows: pa.Table) -> None:
        """Make rows available at once."""

    def read(self) -> DataFrame:
        """Return all rows as a stream, in micro-batches of the given size."""


class _Server:
    """The server, through the data source."""

    name = "mavstream"

    def __init__(self, spark: SparkSession, client: Client, url: str, batch: int) -> None:
        self._spark, self._client, self._url, self._batch = spark, client, url, batch
        client.create_stream(name=STREAM, fields=FIELDS, event_time="at", lateness="1s")

    def add(self, rows: pa.Table) -> None:
        self._client.append(STREAM, rows)

    def read(self) -> DataFrame:
        options = {"url": self._url, "stream": STREAM, "from": "earliest", "maxRowsPerTrigger": self._batch}
        return self._spark.readStream.format("mavstream").options(**options).load()


class _Files:
    """A folder of Parquet files, each of which is a micro-batch."""

    name = "files"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._files = spark, folder, 0
        (folder / "drafts").mkdir()
        (folder / "rows").mkdir()

    def add(self, rows: pa.Table) -> None:
        name = f"{self._files:06d}.parquet"
        self._files += 1
        pa.parquet.write_table(rows, self._folder / "drafts" / name)
        (self._folder / "drafts" / name).rename(self._folder / "rows" / name)

    def read(self) -> DataFrame:
        schema = "at TIMESTAMP, room STRING, temperature DOUBLE"
        files = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return files.parquet(str(self._folder / "rows"))


def _rows(start: int, stop: int) -> pa.Table:
    """Return rows in the order of time, a thousand per second."""
    n = np.arange(start, stop)
    rooms = pa.array([f"room {room}" for room in range(ROOMS)])
    return pa.table(
        {
            "at": pa.array(_BEGIN + n * 1_000, pa.timestamp("us", "UTC")),
            "room": rooms.take(pa.array(n % ROOMS)),
            "temperature": (n * 7 % 1_000) / 10,
        }
    )


def _drain(source: _Source, query: Query) -> dict[str, Any]:
    """Read everything that there is, with results thrown away; the first micro-batch is not timed."""
    with tempfile.TemporaryDirectory(prefix="mavstream-bench-") as checkpoint:
        sink = query(source.read()).writeStream.format("noop").option("checkpointLocation", checkpoint)
        running = sink.trigger(availableNow=True).start()
        running.awaitTermination()
    batches = [json.loads(each.json) for each in running.recentProgress]
    batches = [batch for batch in batches if batch["numInputRows"]]
    timed = batches[1:] or batches
    took = sum(batch["durationMs"]["triggerExecution"] for batch in timed) / 1_000
    return {
        "input": sum(batch["numInputRows"] for batch in batches),
        "rows_per_s": round(sum(batch["numInputRows"] for batch in timed) / took),
        "batch_ms": statistics.median(batch["durationMs"]["triggerExecution"] for batch in timed),
    }


def _latencies(source: _Source, start: int, rounds: int, until: float) -> dict[str, float | int]:
    """Add a few rows again and again, and measure how long it takes until they are counted."""
    counted, news = 0, threading.Condition()

    def count(rows: DataFrame, _: int) -> None:
        nonlocal counted
        found = rows.count()
        with news:
            counted += found
            news.notify()

    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="mavstream-bench-") as checkpoint:
        sink = source.read().writeStream.foreachBatch(count).option("checkpointLocation", checkpoint)
        running = sink.start()
        try:
            with news:
                # The first round is not timed: it begins while the rows before it are read.
                for index in range(rounds + 1):
                    if index > 1 and time.monotonic() > until:
                        break
                    source.add(_rows(start, start + _FEW))
                    start += _FEW
                    begun = time.monotonic()
                    if not news.wait_for(lambda: counted >= start, _PATIENCE_S):  # noqa: B023
                        raise TimeoutError(f"{source.name}: {counted} of {start} rows were counted")
                    took.append((time.monotonic() - begun) * 1_000)
        finally:
            running.stop()
    timed = sorted(took[1:])
    return {
        "rounds": len(timed),
        "median": round(statistics.median(timed)),
        "p95": round(timed[int(len(timed) * 0.95)]),
        "counted": counted,
    }


def _text(metrics: dict[str, Any]) -> str:
    lines = [
        [
            name,
            *(f"{one[query]['rows_per_s']:,}" for query in _QUERIES),
            *(f"{one[query]['batch_ms']:,.0f}" for query in _QUERIES),
            *(f"{one['latency_ms'][key]:,}" for key in ("median", "p95", "rounds")),
        ]
        for name, one in metrics.items()
    ]
    columns = [f"{query}, {unit}" for unit in ("rows/s", "ms a batch") for query in _QUERIES]
    return text_table(["source", *columns, "latency, ms", "p95", "rounds"], lines)
