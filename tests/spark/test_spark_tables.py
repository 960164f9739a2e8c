"""Joins with stored tables on Spark give the rows that the engine gives, version by version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.conftest import MakeStream
from tests.support.servers.tables import as_arrow, as_parquet
from tests.support.spark.answers import assert_same_rows, plan_of, spark_rows
from typer.testing import CliRunner

from mavstream_protocol import InvalidPlan
from mavstream_protocol.instants import format_instant
from mavstream_protocol.manifest import Manifest
from mavstream_protocol.plans.inference import infer
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable, run_plan
from mavstream_spark.commands import app
from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.errors import InvalidJob, UnreadableInput
from mavstream_spark.expected.answers import answer
from mavstream_spark.plans.compiler import compile_plan
from mavstream_spark.plans.table_data import TableData, read_tables
from mavstream_spark.plans.windows import POSITION, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

SECOND = 1_000_000
Cell = tuple[Any, ...]
ROOMS = ["attic", "hall", None, "cellar", "Ünder"]
ROWS: list[Cell] = [(n, ROOMS[n % 5], n % 4) for n in range(40)]
VERSIONS: list[tuple[int, list[Cell]]] = [
    (7, [("attic", 1, "a"), ("hall", 2, None), ("attic", 3, "b"), (None, 4, "n")]),
    (15, [("Ünder", 5, "u"), ("hall", 2, "h"), ("hall", 0, "h2")]),
    (30, []),
]
NODES: dict[str, Any] = {
    "in": {"op": "source", "stream": "readings"},
    "rooms": {"op": "table", "table": "rooms"},
}
JOIN = {"op": "join", "left": "in", "right": "rooms", "on": [["room", "room"]]}
PICKED = {"n": "l.n", "room": "l.room", "cap": "r.cap", "label": "coalesce(r.label, '-')"}
PLANS: dict[str, dict[str, Any]] = {
    "inner": {"j": JOIN},
    "left": {"j": {**JOIN, "how": "left", "compute": PICKED}},
    "inner where": {"j": {**JOIN, "where": "l.floor < r.cap AND 10 / (r.cap - 1) >= 0", "compute": PICKED}},
    "left where": {
        "j": {**JOIN, "how": "left", "where": "l.floor < r.cap OR r.label IS NULL", "compute": PICKED}
    },
    "two keys": {"j": {**JOIN, "on": [["room", "room"], ["floor", "cap"]], "how": "left"}},
    "below a window": {
        "k": {**JOIN, "how": "left", "compute": {"n": "l.n", "room": "l.room", "cap": "r.cap"}},
        "j": {
            "op": "aggregate",
            "input": "k",
            "window": {"kind": "tumbling", "size": 5},
            "compute": {"first": "first(cap)", "last": "last(cap)", "n": "count(*)", "s": "sum(n)"},
        },
    },
}


@pytest.fixture
def table(tmp_path: Path, clock: ManualClock) -> Iterator[ScriptedTable]:
    made = ScriptedTable(
        tmp_path / "tables", "rooms", "room string null, cap int null, label string null", clock
    )
    yield made
    made.close()


@pytest.fixture
def readings(stream: MakeStream, table: ScriptedTable, clock: ManualClock) -> ScriptedStream:
    """Return rows that arrive at their event time, a second apart, between the versions."""
    made = stream("readings", "at timestamp, n int, room string null, floor int", event_time="at")
    versions = dict(VERSIONS)
    for number, *cells in ROWS:
        if number in versions:
            table.put(*versions[number])
        made.rows((clock.now() // 1000, number, *cells))
        clock.advance(seconds=1)
    made.complete()
    return made


def frame_of(spark: SparkSession, begin: int) -> DataFrame:
    times = [begin + n * SECOND for n, _, _ in ROWS]
    columns = {
        "at": pa.array(times, pa.timestamp("us", "UTC")),
        "n": pa.array([n for n, _, _ in ROWS]),
        "room": pa.array([room for _, room, _ in ROWS]),
        "floor": pa.array([floor for _, _, floor in ROWS]),
        TIME: pa.array(times),
        POSITION: pa.array([[n] for n, _, _ in ROWS], pa.list_(pa.int64())),
    }
    return spark.createDataFrame(pa.table(columns))


def table_of(folder: Path, begin: int) -> dict[str, TableData]:
    """Write the versions as files and read them as the command does."""
    given = []
    for number, (second, rows) in enumerate(VERSIONS):
        columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
        types = (pa.string(), pa.int64(), pa.string())
        arrays = [pa.array(list(cells), type_) for cells, type_ in zip(columns, types, strict=True)]
        made = pa.table(dict(zip(("room", "cap", "label"), arrays, strict=True)))
        file = folder / f"v{number}.{'arrow' if number else 'parquet'}"
        file.write_bytes(as_arrow(made, file=True) if number else as_parquet(made))
        given.append(f"rooms={file}@{format_instant(begin + second * SECOND)}")
    return read_tables(reversed(given))


# Plans that are part of others run with the long tests.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("left where", "below a window") else pytest.mark.long)
        for name in PLANS
    ],
)
def test_rows_join_the_version_that_was_current_at_their_time(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    readings: ScriptedStream,
    table: ScriptedTable,
) -> None:
    begin = 1_700_000_000 * SECOND
    nodes = {**NODES, **PLANS[name]}
    expected = run_plan(nodes, "j", [readings], tables=[table]).rows()
    assert expected
    tables = table_of(tmp_path, begin)
    schemas = {each: data.schema for each, data in tables.items()}
    typed = infer(plan_of("j", **nodes), {"readings": readings.shape}, schemas)
    got = spark_rows(compile_plan(typed, {"readings": frame_of(spark, begin)}, tables))
    assert_same_rows(expected, got)


@pytest.mark.long
def test_the_command_accepts_tables_as_a_server_does(homes: Path, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text("room,cap\nkitchen,10\nbedroom,\n")
    (tmp_path / "later.json").write_text(json.dumps([{"room": "kitchen", "cap": 1000}]))
    where = "l.celsius > r.cap"
    plan = plan_of(
        "hot",
        **{"in": {"op": "source", "stream": "temperature"}},
        rooms=NODES["rooms"],
        hot={**JOIN, "where": where, "compute": {"at": "l.at", "cap": "r.cap"}},
    )
    (tmp_path / "hot.json").write_text(plan.model_dump_json(exclude_none=True))
    words = [f"--table=rooms={tmp_path}/rooms.csv", f"--table=rooms={tmp_path}/later.json@2026-03-01T06:00Z"]
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["expected", str(homes), "--plan", f"{tmp_path}/hot.json", *words, "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    made = Manifest.load(out)
    assert made.options["tables"] == {
        "rooms": [
            {"since": None, "rows": 2},
            {"since": "2026-03-01T06:00:00.000000Z", "rows": 1},
        ]
    }
    # Every five minutes in two homes until six o'clock, with missing and duplicate rows.
    assert 130 < made.streams["hot"].rows < 150


def test_the_answer_over_a_dataset_needs_the_rows_of_its_tables(spark: SparkSession, homes: Path) -> None:
    plan = plan_of("j", **{**NODES, "in": {"op": "source", "stream": "temperature"}, "j": JOIN})
    with pytest.raises(InvalidPlan, match="rooms"):
        answer(Dataset(spark, str(homes)), plan)


@pytest.mark.parametrize(
    ("given", "kind", "complaint"),
    [
        (["rooms"], InvalidJob, "expects NAME=FILE or NAME=FILE@INSTANT, got 'rooms'"),
        (["rooms={0}/none.csv"], UnreadableInput, "none.csv' cannot be read: No such file"),
        (
            ["rooms={0}/rooms.txt"],
            UnreadableInput,
            r"unknown ending, expected one of .csv",
        ),
        (["rooms={0}/rooms.csv@noon"], InvalidJob, "'noon' is not ISO 8601 text"),
        (["rooms={0}/rooms.csv", "rooms={0}/rooms.csv"], InvalidJob, "two versions from the same time on"),
        (["rooms={0}/rooms.csv", "rooms={0}/other.csv@2026-03-01"], UnreadableInput, 'got "hot"'),
    ],
)
def test_errors_of_tables_name_the_file_and_the_reason(
    tmp_path: Path, given: list[str], kind: type[Exception], complaint: str
) -> None:
    (tmp_path / "rooms.csv").write_text("room,cap\nattic,1\n")
    (tmp_path / "other.csv").write_text("room,cap\nattic,hot\n")
    with pytest.raises(kind, match=complaint):
        read_tables(each.format(tmp_path) for each in given)
