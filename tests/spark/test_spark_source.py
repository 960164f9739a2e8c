"""The data source against real servers: what is read and written, whatever is killed or repeated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.support.documents import ROOT, as_program, blocks
from tests.support.servers.running_server import RunningServer, eventually
from tests.support.spark.answers import assert_same_rows, rows_of, spark_rows

from mavstream import Client, stream
from mavstream.testing import start_server
from mavstream_spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

TOKEN = "root-secret-of-tests"
FIELDS = [
    {"name": "at", "type": "timestamp"},
    {"name": "room", "type": "string", "nullable": True},
    {"name": "temperature", "type": "float", "nullable": True},
    {"name": "n", "type": "int"},
    {"name": "open", "type": "bool"},
]
BEGIN = 1_767_225_600_000_000
ROWS = 45_000


def readings(start: int, stop: int) -> pa.Table:
    n = np.arange(start, stop)
    return pa.table(
        {
            "at": pa.array(BEGIN + n * 1_000, pa.timestamp("us", "UTC")),
            "room": pa.array([None if each % 11 == 0 else f"room {each % 7}" for each in n.tolist()]),
            "temperature": pa.array([None if each % 13 == 0 else each / 8 for each in n.tolist()]),
            "n": n,
            "open": n % 2 == 0,
        }
    )


class Place:
    """A server that can be killed and started again at the same address, and its data source."""

    def __init__(self, data: Path, spark: SparkSession) -> None:
        self.data = data
        self.spark = spark
        self.flags: tuple[str, ...] = ()
        self.start()

    def start(self) -> None:
        self.server = RunningServer(self.data, *self.flags, env={"MAVSTREAM_TOKENS": f"admin:{TOKEN}"})
        self.server.token = TOKEN
        self.server.wait_ready(300)
        self.flags = ("--port", self.server.url.rpartition(":")[2])
        self.client = Client(self.server.url, token=TOKEN, timeout=60)

    def kill(self) -> None:
        self.client.close()
        self.server.kill()
        self.server.close()

    def make(self, name: str, rows: pa.Table | None = None, **given: Any) -> None:
        self.client.create_stream(name=name, fields=FIELDS, **{"event_time": "at", **given})
        if rows is not None:
            self.client.append(name, rows)

    def options(self, **given: Any) -> dict[str, str]:
        return {"url": self.server.url, "token": TOKEN, **{name: str(value) for name, value in given.items()}}

    def read(self, **given: Any) -> DataFrame:
        return self.spark.read.format("mavstream").options(**self.options(**given)).load()

    def copy(
        self, source: str, target: str, checkpoint: Path, *, now: bool = True, **given: Any
    ) -> StreamingQuery:
        """Start to copy a stream into another one; with `now` up to its present end."""
        options = self.options(stream=source, **{"from": "earliest", **given})
        frame = self.spark.readStream.format("mavstream").options(**options).load()
        sink = frame.writeStream.format("mavstream").options(**self.options(stream=target))
        sink = sink.option("checkpointLocation", str(checkpoint))
        query = (sink.trigger(availableNow=True) if now else sink).start()
        if now:
            query.awaitTermination()
        return query

    def stored(self, name: str) -> pa.Table:
        """Return the rows of a stream as the server has them, without Spark."""
        pages, after = [], None
        while (page := self.client.rows(name, after, 100_000)).batch.num_rows:
            assert page.gap is None
            pages.append(page.batch)
            after = page.next
        return pa.Table.from_batches(pages)


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    register(spark)
    made = Place(tmp_path_factory.mktemp("source"), spark)
    made.make("readings", readings(0, ROWS))
    yield made
    made.client.close()
    made.server.close()


def by_number(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(rows_of(rows), key=lambda row: row[3])


def test_a_batch_reads_what_is_stored_in_several_partitions(place: Place) -> None:
    frame = place.read(stream="readings", numPartitions=3)
    types = [(field.name, field.dataType.simpleString(), field.nullable) for field in frame.schema.fields]
    assert types == [
        ("at", "timestamp", False),
        ("room", "string", True),
        ("temperature", "double", True),
        ("n", "bigint", False),
        ("open", "boolean", False),
    ]
    assert frame.rdd.getNumPartitions() == 3
    stored = readings(0, ROWS)
    assert by_number(frame.toArrow()) == rows_of(stored)
    totals = "room, count(*) AS n, sum(temperature) AS total, min(n) AS first, max(n) AS last"
    frame.createOrReplaceTempView("rows_of_spark")
    expected = duckdb.sql(f"SELECT {totals} FROM stored GROUP BY room").arrow()
    expected = expected if isinstance(expected, pa.Table) else expected.read_all()
    assert_same_rows(
        rows_of(expected), spark_rows(place.spark.sql(f"SELECT {totals} FROM rows_of_spark GROUP BY room"))
    )
    part = place.read(stream="readings", metadata="true", **{"from": 100, "to": 103})
    found = [row.asDict() for row in part.orderBy("_position").collect()]
    assert [row["n"] for row in found] == [row["_position"] for row in found] == [100, 101, 102]
    assert [row["_time"] for row in found] == [row["at"] for row in found]
    assert [row["_watermark"] for row in found[1:]] == [row["at"] for row in found[:-1]]
    subset = place.spark.read.format("mavstream").schema("n BIGINT NOT NULL")
    assert subset.options(**place.options(stream="readings")).load().selectExpr("sum(n)").first() == (
        ROWS * (ROWS - 1) // 2,
    )


def test_a_stream_is_copied_once_over_restarts_and_repeated_batches(place: Place, tmp_path: Path) -> None:
    place.make("twice", readings(0, 25_000))
    place.make("copied", lateness="1m")
    checkpoint = tmp_path / "checkpoint"
    query = place.copy("twice", "copied", checkpoint, maxRowsPerTrigger=10_000, numPartitions=2)
    ends = [progress["sources"][0]["endOffset"] for progress in _progress(query)]
    assert ends == [{"position": 10_000}, {"position": 20_000}, {"position": 25_000}]
    assert by_number(place.stored("copied")) == rows_of(readings(0, 25_000))
    writer = f"spark_{query.id.replace('-', '')}"
    assert place.client.stream_info("copied").producers == {writer: 3}
    # As after a crash between the server's commit and Spark's: the last batch runs again.
    for file in (checkpoint / "commits").glob("*2*"):
        file.unlink()
    place.client.append("twice", readings(25_000, 25_100))
    place.copy("twice", "copied", checkpoint, numPartitions=2)
    assert place.client.stream_info("copied").producers == {writer: 4}
    assert by_number(place.stored("copied")) == rows_of(readings(0, 25_100))
    metrics = place.server.http.get("/metrics").text
    assert 'mavstream_tuples_repeated_total{stream="copied"} 1' in metrics.replace(".0\n", "\n")
    assert place.server.http.get("/v1/streams/copied/stages").json()["items"] == []


def test_a_stream_goes_on_after_the_server_was_killed(place: Place, tmp_path: Path) -> None:
    place.make("killed", readings(0, 30_000))
    place.make("survived", lateness="1m")
    query = place.copy("killed", "survived", tmp_path, now=False, maxRowsPerTrigger=2_000)
    try:
        for rows in (4_000, 12_000):
            eventually(lambda: place.client.stream_info("survived").position >= rows, "the copy", 300)  # noqa: B023
            place.kill()
            place.start()
        eventually(lambda: place.client.stream_info("survived").position >= 30_000, "all rows", 300)
        assert query.exception() is None
    finally:
        query.stop()
    assert by_number(place.stored("survived")) == rows_of(readings(0, 30_000))


def test_results_of_a_query_are_read_as_a_batch_and_as_a_stream(place: Place, tmp_path: Path) -> None:
    hot = stream("readings").where("temperature > 5000").project(at="at", room="room", n="n")
    query = place.client.submit(hot, name="hot_rooms", from_="earliest")
    expected = [row for row in rows_of(readings(0, ROWS)) if row[2] is not None and row[2] > 5000]
    eventually(lambda: query.info().state == "running", "the query", 300)
    eventually(lambda: query.pull(limit=1, after=len(expected) - 2).rows, "its results", 300)
    frame = place.read(query="hot_rooms", metadata="true")
    found = frame.orderBy("_position").select("n", "_position", "_time", "at").collect()
    assert [row["n"] for row in found] == [row[3] for row in expected]
    assert [row["_position"] for row in found] == list(range(len(expected)))
    assert all(row["_time"] == row["at"] for row in found)
    options = place.options(query="hot_rooms", **{"from": 2})
    results = place.spark.readStream.format("mavstream").options(**options).load()
    sink = results.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
    sink.start().awaitTermination()
    assert sorted(row["n"] for row in place.spark.table("seen").collect()) == [row[3] for row in expected[2:]]


def test_rows_that_are_gone_fail_a_read_or_are_left_out(place: Place) -> None:
    place.make("short", retention={"bytes": "128KiB"})
    size = 5_000
    for start in range(0, 40 * size, size):
        place.client.append("short", readings(start, start + size))
    begin = eventually(lambda: place.client.stream_info("short").begin, "retention", 300)
    with pytest.raises(
        Exception, match=r"rows \d+ to \d+ of stream 'short' were removed by retention"
    ) as caught:
        place.read(stream="short", **{"from": 0}).count()
    assert "failOnDataLoss" in str(caught.value)
    left = place.read(stream="short", failOnDataLoss="false", metadata="true", **{"from": 0, "to": 40 * size})
    positions = sorted(row["_position"] for row in left.select("_position").collect())
    gone = place.client.stream_info("short").begin  # retention may have gone on meanwhile
    assert [position for position in positions if position >= gone] == list(range(gone, 40 * size))
    assert begin <= positions[0] <= gone
    assert len(set(positions)) == len(positions)
    assert place.read(stream="short").count() == 40 * size - place.client.stream_info("short").begin
    with pytest.raises(Exception, match="start with a new checkpoint"):
        place.read(stream="short", failOnDataLoss="false", **{"from": begin, "to": 41 * size}).count()


def test_a_frame_is_written_as_one_batch(place: Place) -> None:
    place.make("batches", lateness="1m")
    rows = place.spark.createDataFrame(readings(0, 5_000)).repartition(3)

    def write(frame: DataFrame, mode: str = "append", **given: Any) -> None:
        options = place.options(stream="batches", **given)
        frame.write.format("mavstream").options(**options).mode(mode).save()

    write(rows)
    assert by_number(place.stored("batches")) == rows_of(readings(0, 5_000))
    for _ in range(2):
        write(rows, writer="jobs", batch=7)
    assert place.client.stream_info("batches").position == 10_000
    with pytest.raises(Exception, match="rows of a stream are never replaced"):
        write(rows, "overwrite")
    broken = rows.selectExpr("*").withColumn("n", rows.n + rows.temperature * 0.5)
    with pytest.raises(Exception, match="'n'"):
        write(broken)
    assert place.client.stream_info("batches").position == 10_000
    assert place.server.http.get("/v1/streams/batches/stages").json()["items"] == []


def test_the_token_is_shown_nowhere(place: Place, tmp_path: Path) -> None:
    place.make("quiet", readings(0, 10))
    frame = place.read(stream="quiet")
    plan = frame._jdf.queryExecution().toString() + frame._jdf.toString()
    place.make("target")
    query = place.copy("quiet", "target", tmp_path / "checkpoint")
    shown = [plan, str(_progress(query)), query.explain(extended=True) or ""]
    with pytest.raises(Exception, match="no stream 'nowhere'") as caught:
        place.read(stream="nowhere")
    shown += [str(caught.value), *place.server.log]
    files = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert files
    shown += [file.read_bytes().decode(errors="replace") for file in files]
    assert not [text for text in shown if TOKEN in text]
    shutil.rmtree(tmp_path / "checkpoint")


def test_the_python_of_the_spark_page_prints_the_shown_output(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "spark.md"
    monkeypatch.chdir(tmp_path)
    with start_server(timeout=300) as url:
        program = as_program(page).replace("http://127.0.0.1:8000", url)
        program = program.replace("checkpoints/", f"{tmp_path}/checkpoints/")  # Java keeps its directory
        exec(compile(program, str(page), "exec"), {})
    printed = capsys.readouterr().out
    shown = blocks(page, "text")
    assert len(shown) == 2
    for text in shown:
        assert text in printed


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the progress of the micro-batches that had rows."""
    made = [json.loads(each.json) for each in query.recentProgress]
    for one in made:
        for source in one["sources"]:
            if isinstance(source["endOffset"], str):
                source["endOffset"] = json.loads(source["endOffset"])
    return [one for one in made if one["numInputRows"]]
