"""Queries on Spark through real servers and runners, which are killed: nothing lost, nothing twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyspark
import pytest
from tests.support.servers.running_server import RunningServer, running_server
from tests.support.spark.answers import assert_same_rows, rows_of
from tests.support.spark.runner import START_S, RunnerProcess, StandaloneCluster, awaited, runner
from tests.support.spark.runner_oracle import answers

from mavstream import Client

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

FIELDS = [
    {"name": "at", "type": "timestamp"},
    {"name": "room", "type": "string", "nullable": True},
    {"name": "heat", "type": "float"},
]
BEGIN = 1_767_225_600_000_000
SQL = {
    "hot": "SELECT at, room, heat FROM readings WHERE heat > 90",
    "means": "SELECT room, avg(heat) AS mean, count(*) AS n, window_end "
    "FROM HOP(readings, INTERVAL '5' SECOND, INTERVAL '10' SECOND) GROUP BY room, window_end",
    "rooms": "SELECT DISTINCT room, window_start, window_end FROM TUMBLE(readings, INTERVAL '20' SECOND)",
    "pairs": "SELECT a.at AS at, a.heat AS one, b.heat AS other FROM readings a JOIN others b "
    "ON a.room = b.room AND b.at BETWEEN a.at - INTERVAL '1' SECOND AND a.at + INTERVAL '1' SECOND",
}


def rows(random: Random, start: int, count: int) -> list[dict[str, Any]]:
    """Return rows of some seconds; some are late."""
    made = []
    for n in range(start, start + count):
        late = random.randrange(15_000_000) if random.random() < 0.1 else random.randrange(500_000)
        at = BEGIN + n * 50_000 - late
        room = random.choice(["attic", "hall", "kitchen", None])
        made.append({"at": at, "room": room, "heat": random.randrange(1000) / 10})
    return made


class Scene:
    """A server with streams, each query on both backends, and producers."""

    def __init__(self, server: RunningServer) -> None:
        self.server, self.random, self.sent = server, Random(7), 0
        self.client = Client(server.url, timeout=120)
        for name in ("readings", "others"):
            self.client.create_stream(name=name, fields=FIELDS, event_time="at", lateness="1s")
        for name, sql in SQL.items():
            for backend in ("embedded", "spark"):
                self.client.submit(sql=sql, name=f"{name}_{backend}", from_="earliest", backend=backend)

    def feed(self, count: int = 200) -> None:
        for stream in ("readings", "others"):
            with self.client.feed(f"p{self.random.randrange(2)}", (stream,)) as feed:
                feed.send(stream, rows(self.random, self.sent, count))
        self.sent += count

    def complete(self) -> None:
        for stream in ("readings", "others"):
            self.client.complete(stream)

    def run(self, query: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.http.get(f"/v1/queries/{query}").json()
        return found

    def batches(self, query: str) -> int:
        return int((self.run(query)["run"] or {"batch": 0})["batch"])

    def check(self) -> None:
        """Wait for the ends of all queries and compare the backends with DuckDB."""
        expected = answers(self.server)
        for name in SQL:
            awaited(lambda: self.run(f"{name}_spark")["state"] == "finished", name)  # noqa: B023
            by_engine, by_spark = (
                rows_of(self.client.query(f"{name}_{backend}").results(on_gap="raise").to_arrow())
                for backend in ("embedded", "spark")
            )
            assert by_engine, name
            assert_same_rows(by_engine, by_spark)
            assert_same_rows(expected[name], by_spark)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with running_server(tmp_path / "data") as server:
        made = Scene(server)
        yield made
        made.client.close()


def started(scene: Scene) -> None:
    """Wait until the runner has published a batch of each query."""
    for name in SQL:
        awaited(lambda: scene.batches(f"{name}_spark") > 0, f"a batch of {name}")  # noqa: B023


def test_a_runner_that_is_killed_in_mid_run_goes_on(scene: Scene, tmp_path: Path) -> None:
    scene.feed()
    with runner(scene.server, tmp_path / "runner.log", "--master", "local[2]") as running:
        started(scene)
        for _ in range(2):
            scene.feed()
            before = scene.batches("hot_spark")
            awaited(lambda: scene.batches("hot_spark") > before, "a batch")  # noqa: B023
            scene.feed()
            running.kill()
            scene.feed()
            running.start()
        scene.complete()
        scene.check()


def test_a_server_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        scene = Scene(server)
        scene.feed()
        with runner(server, tmp_path / "runner.log", "--master", "local[2]"):
            started(scene)
            scene.feed()
            scene.client.close()
            server.kill()
            port = server.url.rpartition(":")[2]
            with running_server(tmp_path / "data", "--port", port) as again:
                scene.server, scene.client = again, Client(again.url, timeout=120)
                scene.feed()
                scene.complete()
                scene.check()
                scene.client.close()


def test_what_is_asked_for_is_followed(scene: Scene, tmp_path: Path) -> None:
    scene.feed()
    scene.client.put_class("urgent", 500)
    with runner(scene.server, tmp_path / "runner.log", "--master", "local[1]") as running:
        started(scene)
        hot = scene.client.query("hot_spark")
        hot.pause()
        awaited(lambda: scene.run("hot_spark")["state"] == "paused", "the pause")
        before = scene.run("hot_spark")["results"]
        scene.feed()
        running.kill()
        running.start()
        hot.set_class("urgent")
        hot.resume()
        awaited(lambda: scene.run("hot_spark")["state"] == "running", "the resumption")
        assert scene.run("hot_spark")["results"] == before  # rows of the pause are not read
        batch = scene.batches("hot_spark")
        scene.feed()
        awaited(lambda: scene.batches("hot_spark") > batch, "a batch")
        hot.stop()
        assert scene.run("hot_spark")["state"] == "stopped"
        scene.client.query("means_spark").stop()


def kill_and_check(scene: Scene, running: RunnerProcess, kill_worker: Callable[[], None]) -> None:
    """Kill a worker, then the driver, while rows arrive; answers must be those of an undisturbed run."""
    started(scene)
    scene.feed()
    kill_worker()
    scene.feed()
    before = scene.batches("hot_spark")
    awaited(lambda: scene.batches("hot_spark") > before, "a batch")
    running.kill()
    scene.feed()
    running.start()
    scene.complete()
    scene.check()


def test_a_worker_and_the_driver_die_on_a_standalone_cluster(scene: Scene, tmp_path: Path) -> None:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    cluster = StandaloneCluster(home, tmp_path / "cluster", workers=2)
    try:
        scene.feed()
        words = ("--master", cluster.url, "--conf", "spark.executor.memory=700m")
        words += ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.cores.max=2")
        with runner(scene.server, tmp_path / "runner.log", *words) as running:
            kill_and_check(scene, running, lambda: cluster.kill_worker(0))
    finally:
        cluster.close()


def test_an_executor_and_the_driver_die_on_a_local_cluster(scene: Scene, tmp_path: Path) -> None:
    scene.feed()
    words = ("--master", "local-cluster[2,1,1024]", "--conf", "spark.driver.host=127.0.0.1")
    with runner(scene.server, tmp_path / "runner.log", *words) as running:
        kill_and_check(scene, running, running.kill_executor)


def test_the_runner_waits_for_queries_and_ends_in_order(scene: Scene, tmp_path: Path) -> None:
    made = RunnerProcess(scene.server, tmp_path / "runner.log", "--master", "local[1]")
    try:
        awaited(lambda: "is ready" in made.log.read_text(), "the runner")
        made.process.terminate()
        assert made.process.wait(START_S) == 0
    finally:
        made.close()
