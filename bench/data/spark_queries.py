"""Queries with backend `spark` beside plain Structured Streaming: rows per second, and latency.

Both run in the same session on the same rows: those of a server, which gets the answers, too, and those of
Parquet files, whose answers are fetched by the driver. Throughput is over streams that are complete, after a
run that is not timed; latency is from the time at which a second of rows is there to the time at which all
answers that follow from it are.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from bench.workload.queries import Q1, Q2, Q3, BenchQuery
from bench.workload.readings import EVENT_TIME, FIELDS, RATE, arrow_readings, plain, readings
from bench.workload.reference import Reference
from mavstream import Client
from mavstream_protocol import Plan
from mavstream_spark import register
from mavstream_spark.runs.pools import fair_settings
from mavstream_spark.runs.query_run import RunOptions
from mavstream_spark.runs.runner import Runner
from mavstream_spark.session import spark_session
from mavstream_spark.source.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATIENCE_S = 600.0
_LOOK_S = 0.02
"""Interval at which results on the server are counted, in seconds."""
_PARTITIONS = 4
_LAST = 1 << 52
"""A time behind all rows, in microseconds."""

Frames = Mapping[str, "DataFrame"]


def _q1(streams: Frames) -> DataFrame:
    rows = streams["readings"].where("temperature > 30 AND humidity < 30")
    return rows.selectExpr("unix_micros(ts) AS ts", "location", "temperature * 1.8D + 32 AS fahrenheit")


def _q2(streams: Frames) -> DataFrame:
    from pyspark.sql.functions import avg, col, count, expr, lit, window

    rows = streams["readings"].withWatermark("ts", "0 seconds")
    groups = rows.groupBy(window(col("ts"), "1 second"), col("location"))
    found = groups.agg(
        count(lit(1)).alias("n"), avg("temperature").alias("mean"), expr("max(humidity) AS top")
    )
    bounds = [f"unix_micros(window.{end}) AS window_{end}" for end in ("start", "end")]
    return found.selectExpr(*bounds, "location", "n", "mean", "top")


def _q3(streams: Frames) -> DataFrame:
    from pyspark.sql.functions import expr

    left, right = (
        streams[name].withWatermark("ts", "0 seconds").alias(side)
        for name, side in (("lefts", "l"), ("rights", "r"))
    )
    reach = "INTERVAL 50 MILLISECONDS"
    near = f"l.sensor_id = r.sensor_id AND r.ts BETWEEN l.ts - {reach} AND l.ts + {reach}"
    return left.join(right, expr(near)).selectExpr(
        "l.sensor_id AS sensor_id",
        *(f"unix_micros({side}.ts) AS {name}_ts" for side, name in (("l", "left"), ("r", "right"))),
        "l.temperature AS left_temperature",
        "r.temperature AS right_temperature",
    )


class _Case(NamedTuple):
    query: BenchQuery
    by_hand: Callable[[Frames], DataFrame]


CASES = {"q1": _Case(Q1, _q1), "q2": _Case(Q2, _q2), "q3": _Case(Q3, _q3)}


class _Data:
    """The rows of a query's streams, in parts of so many rows, and the answers over the first ones."""

    def __init__(self, query: BenchQuery, rows: int, part: int) -> None:
        self.query, self.part = query, part
        self.size = rows // len(query.streams)
        self._rows = {name: arrow_readings(self.size, seed) for seed, name in enumerate(query.streams)}
        self._plain = {
            name: pa.table({field: plain(column) for field, column in readings(self.size, seed).items()})
            for seed, name in enumerate(query.streams)
        }

    @property
    def parts(self) -> Iterator[Mapping[str, pa.Table]]:
        """The rows, a part of each stream at a time."""
        for start in range(0, self.size, self.part):
            yield {
                name: pa.Table.from_batches([rows.slice(start, self.part)])
                for name, rows in self._rows.items()
            }

    def reference(self) -> Reference:
        """Return the answer over all rows."""
        return Reference(self.query, self._plain)

    def answered(self, rows: int) -> int:
        """Return how many answers the first rows of each stream have; open windows have none."""
        first = {name: table.slice(0, rows) for name, table in self._plain.items()}
        latest = min(int(table[EVENT_TIME][-1].as_py()) for table in first.values())
        sql = self.query.sql
        if "window_end" in self.query.columns:
            sql = f"SELECT * FROM ({sql}) WHERE window_end <= {latest}"
        return Reference(_Limited(sql, self.query.columns, self.query.floats), first).rows


class _Limited(NamedTuple):
    sql: str
    columns: tuple[str, ...]
    floats: frozenset[str]


def measure(
    client: Client, url: str, rows: int, batch: int, rounds: int, executors: int
) -> tuple[dict[str, Any], bool]:
    """Return the metrics of all queries on so many executors, and whether all answers were right."""
    metrics: dict[str, Any] = {}
    correct = True
    with (
        tempfile.TemporaryDirectory(prefix="mavstream-bench-") as folder,
        _runner(url, Path(folder), batch, executors) as spark,
    ):
        for name, case in CASES.items():
            for side in (_Served(client, case), _Plain(spark, Path(folder), case)):
                data = _Data(case.query, rows, batch)
                side.drain(_Data(case.query, min(rows, batch), batch))
                took, answer = side.drain(data)
                correct = correct and data.reference().agrees(answer)
                few = _Data(case.query, (rounds + 1) * RATE * len(case.query.streams), RATE)
                timed = sorted(side.latencies(few)[1:])
                metrics.setdefault(name, {})[side.name] = {
                    "rows_per_s": round(rows / took),
                    "latency_ms": round(statistics.median(timed)),
                    "p95_ms": round(timed[int(len(timed) * 0.95)]),
                }
    return metrics, correct


@contextmanager
def _runner(url: str, folder: Path, batch: int, executors: int) -> Iterator[SparkSession]:
    """Yield a session on so many executors with a core each; a runner uses it, too."""
    settings = {
        **fair_settings(folder),
        "spark.sql.shuffle.partitions": str(_PARTITIONS),
        "spark.driver.host": "127.0.0.1",
    }
    with spark_session(f"local-cluster[{executors},1,1024]", settings) as spark:
        register(spark)
        server = read_options({"url": url, "stream": "none"}).server
        runner = Runner(spark, server, RunOptions("bench", batch, _PARTITIONS), 0.05)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            yield spark
        finally:
            runner.stop()
            thread.join()


class _Served:
    """A query of the server with backend `spark`."""

    name = "mavstream"

    def __init__(self, client: Client, case: _Case) -> None:
        self._client, self._case = client, case

    @contextmanager
    def _query(self, parts: Iterator[Mapping[str, pa.Table]], *, complete: bool) -> Iterator[Any]:
        query = self._case.query
        for name in query.streams:
            self._client.create_stream(name=name, fields=FIELDS, event_time=EVENT_TIME)
        for part in parts:
            self._add(part)
        if complete:
            for name in query.streams:
                self._client.complete(name)
        plan = Plan.parse({"root": "answer", "nodes": query.nodes})
        made = self._client.submit(plan, name="measured", from_="earliest", backend="spark")
        try:
            _until(lambda: (run := made.info().run) is not None and run.runner is not None)
            yield made
        finally:
            made.delete()
            for name in query.streams:
                self._client.delete_stream(name)

    def _add(self, part: Mapping[str, pa.Table]) -> None:
        for name, rows in part.items():
            self._client.append(name, rows)

    def drain(self, data: _Data) -> tuple[float, pa.Table]:
        """Return the seconds that a query over complete streams takes, and its answer."""
        with self._query(data.parts, complete=True) as query:
            begun = time.monotonic()
            _until(lambda: query.info().state in ("finished", "failed"))
            took = time.monotonic() - begun
            return took, _in_micros(query.results(on_gap="raise").to_arrow())

    def latencies(self, data: _Data) -> list[float]:
        """Return the milliseconds from each part to its last answer."""
        took, rows = [], 0
        with self._query(iter(()), complete=False) as query:
            for part in data.parts:
                rows += data.part
                expected = data.answered(rows)
                begun = time.monotonic()
                self._add(part)
                _until(lambda: query.info().results >= expected)  # noqa: B023
                took.append((time.monotonic() - begun) * 1_000)
        return took


class _Plain:
    """Structured Streaming over Parquet files, of which a micro-batch reads one per stream."""

    name = "plain"

    def __init__(self, spark: SparkSession, folder: Path, case: _Case) -> None:
        self._spark, self._folder, self._case = spark, folder, case
        self._runs = 0

    def _add(self, folder: Path, number: int, part: Mapping[str, pa.Table]) -> None:
        for name, rows in part.items():
            draft = folder / f"{name}.draft"
            pa.parquet.write_table(rows, draft)
            draft.rename(folder / name / f"{number:06d}.parquet")

    @contextmanager
    def _query(
        self, parts: Iterator[Mapping[str, pa.Table]], take: Callable[[pa.Table], None], **trigger: Any
    ) -> Iterator[Any]:
        self._runs += 1
        folder = self._folder / f"{id(self)}-{self._runs}"
        for name in self._case.query.streams:
            (folder / name).mkdir(parents=True)
        for number, part in enumerate(parts):
            self._add(folder, number, part)
        schema = "ts TIMESTAMP, sensor_id BIGINT, location STRING, temperature BIGINT, humidity BIGINT"
        files = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams = {name: files.parquet(str(folder / name)) for name in self._case.query.streams}
        sink = self._case.by_hand(streams).writeStream.outputMode("append")
        sink = sink.foreachBatch(lambda answers, _: take(answers.toArrow()))
        running = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()
        try:
            yield running, folder
        finally:
            with suppress(Exception):
                running.stop()

    def drain(self, data: _Data) -> tuple[float, pa.Table]:
        """Return the seconds that a query over all files takes, and its answer."""
        found: list[pa.Table] = []
        begun = time.monotonic()

        def parts() -> Iterator[Mapping[str, pa.Table]]:
            nonlocal begun
            last = None
            for part in data.parts:
                yield part
                last = part
            assert last is not None
            # A row far behind all others closes their windows; its own stays open.
            yield {name: _later(rows.slice(rows.num_rows - 1)) for name, rows in last.items()}
            begun = time.monotonic()

        with self._query(parts(), found.append, availableNow=True) as (running, _):
            running.awaitTermination()
            took = time.monotonic() - begun
        answer = pa.concat_tables(found)
        return took, answer.filter(pa.compute.less(answer[self._time()], _LAST))

    def _time(self) -> str:
        return next(name for name in self._case.query.columns if name.endswith(("ts", "window_start")))

    def latencies(self, data: _Data) -> list[float]:
        """Return the milliseconds from each part to its last answer."""
        counted, news = 0, threading.Condition()

        def take(answers: pa.Table) -> None:
            nonlocal counted
            with news:
                counted += answers.num_rows
                news.notify()

        took, rows = [], 0
        with self._query(iter(()), take, processingTime="50 milliseconds") as (_, folder):
            for number, part in enumerate(data.parts):
                rows += data.part
                expected = data.answered(rows)
                begun = time.monotonic()
                self._add(folder, number, part)
                with news:
                    if not news.wait_for(lambda: counted >= expected, _PATIENCE_S):  # noqa: B023
                        raise TimeoutError(f"{counted} of {expected} answers after {_PATIENCE_S:.0f} s")
                took.append((time.monotonic() - begun) * 1_000)
        return took


def _until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not met():
        if time.monotonic() > end:
            raise TimeoutError(f"the server did not answer within {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)


def _later(row: pa.Table) -> pa.Table:
    times = pa.array([_LAST], pa.int64()).cast(row.schema.field(EVENT_TIME).type)
    changed = row.set_column(0, row.schema.field(EVENT_TIME), times)
    # No reading has this sensor or is hot, so it joins with none and is in no answer of Q1.
    names = changed.schema.names
    for name, value in (("sensor_id", -1), ("temperature", 0)):
        changed = changed.set_column(names.index(name), name, pa.array([value], pa.int64()))
    return changed


def _in_micros(table: pa.Table) -> pa.Table:
    columns = [
        column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def text_lines(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Return a line per query and number of executors."""
    lines = []
    for executors, queries in metrics.items():
        for name, both in queries.items():
            ours, theirs = both["mavstream"], both["plain"]
            cells = [
                f"{one[key]:,}" for key in ("rows_per_s", "latency_ms", "p95_ms") for one in (ours, theirs)
            ]
            lines.append([f"{name}, executors: {executors}", *cells])
    return lines


HEADER = ["query", *(f"{what}, {side}" for what in ("rows/s", "ms", "p95") for side in ("server", "plain"))]
