"""Limits of a server: each is reported when it is reached, and no accepted row is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    closed_with,
    eventually,
    running_server,
)
from tests.support.servers.sensors import PLAN, SENSORS, STREAM, TUPLES, problem


def test_reached_limits_are_reported(tmp_path: Path) -> None:
    limits = ("--max-streams", "1", "--max-queries", "1", "--max-subscribers", "1", "--max-connections", "4")
    with running_server(tmp_path, *limits) as server:
        assert server.http.post(STREAM, json=SENSORS).status_code == 201
        more = server.http.post(STREAM, json={**SENSORS, "name": "more"})
        assert problem(more) == (429, "too_many_streams")
        query = server.http.post("/v1/queries", json={"plan": PLAN}).json()["id"]
        assert problem(server.http.post("/v1/queries", json={"plan": PLAN}))[1] == "too_many_queries"
        address = f"/v1/queries/{query}/results"
        with server.websocket(address) as one:
            one.recv(timeout=PATIENCE)
            with server.websocket(address) as two:
                assert closed_with(two)[0] == 4429
            with server.websocket("/v1/feed"), server.websocket("/v1/feed"), server.websocket("/v1/feed"):
                eventually(lambda: server.http.get(STREAM).status_code == 503, "the limit to be reached")
                assert problem(server.http.get(STREAM)) == (503, "too_many_connections")
                with server.websocket("/v1/feed") as much:
                    assert closed_with(much)[0] == 4429
        eventually(lambda: server.http.get(STREAM).status_code == 200, "connections to be free again")


def test_a_full_disk_is_reported_and_no_accepted_row_is_lost(tmp_path: Path) -> None:
    with running_server(tmp_path, "--max-disk-bytes", "300KiB") as server:
        assert server.http.post(STREAM, json=SENSORS).status_code == 201
        taken = 0
        while True:
            answer = server.http.post(TUPLES, json=[{"n": n, "x": 0.5, "t": "x" * 100} for n in range(100)])
            if answer.status_code != 200:
                break
            taken += answer.json()["accepted"]
        assert problem(answer) == (507, "disk_limit")
        assert taken == server.http.get("/v1/streams/sensors").json()["position"] > 0


def test_a_stream_at_its_quota_slows_its_producer_and_names_the_query_that_holds_it(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        spec = {**SENSORS, "quota": "512KiB"}
        assert server.http.post(STREAM, json=spec).status_code == 201
        batch: dict[str, list[Any]] = {
            "n": list(range(1000)),
            "x": [0.5] * 1000,
            "t": ["x" * 50] * 1000,
            "at": [None] * 1000,
        }
        query = server.http.post("/v1/queries", json={"plan": PLAN, "from": "earliest"}).json()["id"]
        address = "/v1/streams/sensors"
        # No query reads: the engine is stopped, not dead.
        engine = server.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGSTOP)
        try:
            with RawProducer(server, "p", "sensors") as producer:
                for sequence in range(1, 31):
                    producer.columns("sensors", sequence, batch)
                eventually(lambda: server.http.get(address).json()["over_quota"], "the quota to be reached")
                info = server.http.get(address).json()
                assert info["held_by"] == query
                assert 0 < info["position"] < 30_000
                refused = server.http.post(TUPLES, json=[{"n": 1, "x": 1}])
                assert problem(refused) == (429, "over_quota")
                assert query in refused.json()["detail"]
                os.kill(engine, signal.SIGCONT)
                # Held, not rejected: all frames are acked when the query has read and there is room again.
                producer.acked("sensors", 30)
        finally:
            os.kill(engine, signal.SIGCONT)
