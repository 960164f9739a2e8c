"""The queries of the demo give the same answers on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.commands.as_process import command
from tests.support.servers.running_server import running_server
from tests.support.spark.answers import assert_same_rows, rows_of
from tests.support.spark.runner import awaited, runner

from mavstream import Client, Invalid
from mavstream_feeder.demo.queries import CLASSES
from mavstream_spark.datasets.reader import Dataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

DEMO = {name: flow for each in CLASSES for name, flow in each.queries.items()}


def test_the_demo_is_answered_on_spark_as_by_the_engine(
    spark: SparkSession, rush: Path, tmp_path: Path
) -> None:
    dataset = Dataset(spark, str(rush))
    with running_server(tmp_path / "data") as server, Client(server.url, timeout=60) as client:
        for name, data in dataset.manifest.streams.items():
            client.create_stream(data.spec(name))
        both, refused = {}, []
        for name, flow in DEMO.items():
            try:
                moved = client.submit(flow, name=f"{name}_spark", backend="spark")
            except Invalid as error:
                refused += error.problem.errors
                continue
            both[name] = client.submit(flow, name=name), moved
        assert len(both) > len(DEMO) // 2
        assert {one.code for one in refused} <= {"not_on_spark"}
        with runner(server, tmp_path / "runner.log", "--master", "local[2]"):
            fed = command("--url", server.url, "feed", "--data", str(rush), "--rate", "max", "-o", "json")
            assert fed.returncode == 0, fed.stderr
            for name in dataset.manifest.streams:
                client.complete(name)
            for name, (ours, theirs) in both.items():
                expected = rows_of(ours.results(on_gap="raise", timeout=60).to_arrow())
                awaited(lambda: theirs.info().state == "finished", name)  # noqa: B023
                assert_same_rows(expected, rows_of(theirs.results(on_gap="raise", timeout=60).to_arrow()))
