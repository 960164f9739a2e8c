"""End to end: a dataset of Spark is fed to a server, whose answers are those that Spark computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.commands.as_process import command
from tests.support.spark.answers import assert_same_rows, plan_of, rows_of, spark_rows
from typer.testing import CliRunner

from mavstream import Client
from mavstream.testing import start_server
from mavstream_feeder.demo.queries import CLASSES
from mavstream_spark.commands import app
from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.expected.answers import answer
from mavstream_spark.plans.table_data import read_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

DEMO = {name: flow for each in CLASSES for name, flow in each.queries.items()}
ABOVE = plan_of(
    "above",
    light={"op": "source", "stream": "light"},
    rooms={"op": "table", "table": "rooms"},
    above={
        "op": "join",
        "left": "light",
        "right": "rooms",
        "on": [["room", "room"]],
        "how": "left",
        "where": "l.lux > r.most",
        "compute": {"at": "l.at", "room": "l.room", "lux": "l.lux", "most": "r.most"},
    },
)


def test_a_dataset_of_spark_is_fed_and_answered_as_spark_answers(
    spark: SparkSession, rush: Path, tmp_path: Path
) -> None:
    dataset = Dataset(spark, str(rush))
    rooms = tmp_path / "rooms.csv"
    rooms.write_text("room,most\nkitchen,100.0\nliving,\nhall,2.5\n")
    tables = read_tables([f"rooms={rooms}"])
    with start_server() as url, Client(url, timeout=60) as client:
        for name, data in dataset.manifest.streams.items():
            client.create_stream(data.spec(name))
        client.put_table("rooms", rooms)
        queries = {name: client.submit(flow, name=name) for name, flow in DEMO.items()}
        queries["above"] = client.submit(ABOVE, name="above")
        fed = command("--url", url, "feed", "--data", str(rush), "--rate", "max", "-o", "json")
        assert fed.returncode == 0, fed.stderr
        sent = {name: one["acked"] for name, one in json.loads(fed.stdout)["streams"].items()}
        assert sent == {name: data.rows for name, data in dataset.manifest.streams.items()}
        for name in dataset.manifest.streams:
            client.complete(name)
        # Spark gets the plans from the server.
        words = [f"--query={query.id}" for query in queries.values()]
        words += ["--url", url, "--table", f"rooms={rooms}", "--out", str(tmp_path / "answers")]
        done = CliRunner().invoke(app, ["expected", str(rush), *words])
        assert done.exit_code == 0, done.output
        expected = Dataset(spark, str(tmp_path / "answers"))
        for name, query in queries.items():
            got = rows_of(query.results(on_gap="raise", timeout=60).to_arrow())
            assert_same_rows(spark_rows(expected.rows(query.id.replace("-", "_"))), got)
            assert got or name == "frost"
    assert_same_rows(spark_rows(answer(dataset, ABOVE, tables)[1]), got)
