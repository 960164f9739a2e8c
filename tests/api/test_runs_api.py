"""Queries with backend `spark` over a real server, whose runner is the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from tests.support.servers.running_server import RunningServer, closed_with, running_server
from tests.support.servers.sensors import problem

from mavstream_protocol.wire.runs import BATCH_KEY

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
TOKENS = {
    "MAVSTREAM_TOKENS": "admin:root-secret-of-tests,runner:runs-secret-of-tests,client:user-secret-of-tests"
}
STREAM = {
    "name": "readings",
    "fields": [{"name": "at", "type": "timestamp"}, {"name": "n", "type": "int"}],
    "event_time": "at",
}
SQL = "SELECT n FROM readings WHERE n > 1"


def feed(server: RunningServer, *numbers: int) -> None:
    rows = [{"at": f"2026-01-01T00:00:{n:02}Z", "n": n} for n in numbers]
    assert server.http.post("/v1/streams/readings/tuples", json=rows).status_code == 200


def register(server: RunningServer, **options: Any) -> dict[str, Any]:
    made = server.http.post("/v1/queries", json={"name": "big", "sql": SQL, "backend": "spark", **options})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def publish(server: RunningServer, batch: int, numbers: list[int], **about: Any) -> httpx.Response:
    given = {"batch": batch, "state": {"seen": batch}, **about}
    schema = pa.schema([pa.field("n", pa.int64())], metadata={BATCH_KEY: json.dumps(given).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(pa.table([pa.array(numbers, pa.int64())], schema=schema))
    return server.http.post("/v1/queries/big/results", content=sink.getvalue().to_pybytes(), headers=ARROW)


def report(server: RunningServer, **report: Any) -> dict[str, Any]:
    told = server.http.put("/v1/queries/big/run", json={"runner": "r", **report})
    assert told.status_code == 200, told.text
    found: dict[str, Any] = told.json()
    return found


def shown(server: RunningServer) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/v1/queries/big").json()
    return found


def results(server: RunningServer) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/v1/queries/big/results").json()
    return found


def test_batches_are_published_once_and_the_run_goes_on_after_sigkill(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=STREAM)
        feed(server, 0, 1)
        made = register(server)
        assert (made["state"], made["spec"]["backend"]) == ("starting", "spark")
        feed(server, 2, 3)
        task = report(server, progress={"rows_read": 0})
        assert (task["batch"], task["desired"], task["priority"]) == (0, "running", 1)
        assert task["state"] == {"positions": {"readings": 2}, "gaps": {"readings": 1767225601000000}}
        stream = task["streams"]["readings"]
        assert (stream["end"], stream["complete"], stream["event_time"]) == (4, False, "at")
        assert stream["watermark"] == stream["latest"] == 1767225603000000
        taken = publish(server, 1, [2, 3], needs={"readings": 4}).json()
        assert taken == {"accepted": 2, "repeated": False, "batch": 1, "end": 2}
        assert publish(server, 1, [2, 3]).json()["repeated"]
        assert problem(publish(server, 3, [])) == (409, "wrong_batch")
        assert problem(publish(server, 2, [], needs={"other": 1})) == (409, "unknown_stream")
        assert publish(server, 2, [], needs={"readings": 4}).json()["end"] == 2
        server.kill()
    with running_server(tmp_path) as server:
        assert shown(server)["state"] == "starting"
        task = report(server)
        assert (task["batch"], task["state"]) == (2, {"seen": 2})
        found = shown(server)
        assert (found["state"], found["results"], found["delivery"]["guarantee"]) == (
            *("running", 2),
            "exactly_once",
        )
        assert (found["run"]["runner"], found["run"]["positions"]) == ("r", {"readings": 4})
        assert publish(server, 2, [7]).json()["repeated"]
        assert publish(server, 3, [4], ends=True).json()["end"] == 3
        assert [row["n"] for row in results(server)["rows"]] == [2, 3, 4]
        assert shown(server)["state"] == "finished"
        assert results(server)["complete"]
        assert problem(publish(server, 4, [])) == (409, "wrong_state")


def test_a_subscriber_gets_batches_as_those_of_the_engine(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=STREAM)
        register(server)
        with server.websocket("/v1/queries/big/results?after=-1") as socket:
            assert publish(server, 1, [5, 6]).status_code == 200
            seen = []
            while len(seen) < 2:
                message = json.loads(socket.recv(timeout=30))
                seen += [row["n"] for row in message.get("rows", ())]
            assert seen == [5, 6]
            assert server.http.patch("/v1/queries/big", json={"state": "paused"}).status_code == 200
            assert report(server)["desired"] == "paused"
            report(server, paused=True)
            assert shown(server)["state"] == "paused"
            assert server.http.patch("/v1/queries/big", json={"state": "running"}).status_code == 200
            assert server.http.patch("/v1/queries/big", json={"state": "stopped"}).status_code == 200
            assert closed_with(socket) == (1000, "the query has ended")
        assert report(server)["final"] == "stopped"


def test_what_spark_does_not_run_is_named_by_node(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=STREAM)
        plan = {
            "root": "rows",
            "nodes": {
                "in": {"op": "source", "stream": "readings"},
                "rows": {
                    "op": "aggregate",
                    "input": "in",
                    "window": {"kind": "tumbling", "size": 10},
                    "compute": {"n": "count(*)"},
                },
            },
        }
        given = {"name": "by_rows", "plan": plan, "backend": "spark", "on_error": "fail"}
        refused = server.http.post("/v1/queries", json=given)
        assert refused.status_code == 422
        errors = {one["pointer"]: one["detail"] for one in refused.json()["errors"]}
        assert errors.keys() == {"plan/nodes/rows", "on_error"}
        assert "windows by rows are not supported" in errors["plan/nodes/rows"]
        made = server.http.post(
            "/v1/sql", json={"sql": f"CREATE QUERY big WITH (backend = 'spark') AS {SQL};"}
        )
        assert made.status_code == 200, made.text
        assert shown(server)["spec"]["backend"] == "spark"
        listed = server.http.get("/v1/queries", params={"backend": "spark"}).json()["items"]
        assert [one["spec"]["name"] for one in listed] == ["big"]
        above = server.http.post("/v1/queries", json={"name": "above", "sql": "SELECT n FROM big"})
        assert problem(above) == (409, "upstream_outside")
        inside = server.http.post("/v1/queries", json={"name": "inside", "sql": SQL}).json()["id"]
        told = server.http.put(f"/v1/queries/{inside}/run", json={"runner": "r"})
        assert problem(told) == (409, "wrong_backend")
        failed = report(server, failed="a sum of integers exceeds 64 bits")
        assert failed["final"] == "failed"
        assert shown(server)["reason"] == "a sum of integers exceeds 64 bits"
        assert server.http.delete("/v1/queries/big").status_code == 204


def test_only_runners_publish(tmp_path: Path) -> None:
    with running_server(tmp_path, token="root-secret-of-tests", env=TOKENS) as server:
        server.http.post("/v1/streams", json=STREAM)
        register(server)
        server.http.headers["authorization"] = "Bearer user-secret-of-tests"
        assert publish(server, 1, [1]).status_code == 403
        assert server.http.put("/v1/queries/big/run", json={"runner": "r"}).status_code == 403
        server.http.headers["authorization"] = "Bearer runs-secret-of-tests"
        assert report(server)["batch"] == 0
        assert publish(server, 1, [1]).json()["accepted"] == 1
        assert server.http.get("/v1/streams/readings/tuples").status_code == 200
        assert server.http.post("/v1/streams/readings/tuples", json=[]).status_code == 403
        assert server.http.post("/v1/queries", json={"name": "q", "sql": SQL}).status_code == 403


def test_a_batch_that_is_no_batch_is_refused(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=STREAM)
        register(server)
        path = "/v1/queries/big/results"
        assert problem(server.http.post(path, content=b"{}", headers=ARROW)) == (400, "invalid_tuples")
        assert problem(server.http.post(path, json={})) == (415, "unsupported_media_type")
        assert problem(publish(server, 0, [])) == (400, "invalid_batch")
        schema = pa.schema([pa.field("n", pa.int64())])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema):
            pass
        bare = server.http.post(path, content=sink.getvalue().to_pybytes(), headers=ARROW)
        assert problem(bare) == (400, "invalid_batch")
