"""Stages and batches over a real server, which is killed in between."""

from __future__ import annotations

from pathlib import Path

import httpx
from tests.support.servers.readings import SCHEMA, batch, create, rows
from tests.support.servers.running_server import RunningServer, running_server
from tests.support.servers.sensors import problem

from mavstream_protocol.tuples import encode_stream

ARROW = "application/vnd.apache.arrow.stream"
STAGES, BATCHES, TUPLES = (f"/v1/streams/readings/{name}" for name in ("stages", "batches", "tuples"))
TOKENS = {"MAVSTREAM_TOKENS": "admin:root-secret-of-tests,feeder:writer-secret-of-tests"}


def publish(server: RunningServer, sequence: int, *stages: str) -> httpx.Response:
    return server.http.post(BATCHES, json={"producer": "p", "sequence": sequence, "stages": stages})


def test_a_published_batch_survives_sigkill(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        create(server)
        arrow = encode_stream(SCHEMA, [batch(0, 3)])
        made = server.http.put(f"{STAGES}/a", content=arrow, headers={"Content-Type": ARROW})
        assert (made.status_code, made.json()["rows"], made.json()["owner"]) == (200, 3, None)
        assert server.http.put(f"{STAGES}/b", json=rows(3, 5)).status_code == 200
        assert [one["name"] for one in server.http.get(STAGES).json()["items"]] == ["a", "b"]
        assert publish(server, 1, "a").json() == {"accepted": 3, "position": 0, "sequence": 1}
        bad = server.http.put(f"{STAGES}/c", json=[{"n": "no number"}])
        assert problem(bad) == (422, "invalid_tuples")
        server.kill()
    with running_server(tmp_path) as server:
        assert server.http.put(f"{STAGES}/a", json=rows(0, 3)).status_code == 200
        assert publish(server, 1, "a").json() == {"accepted": 0, "position": None, "sequence": 1}
        assert publish(server, 2, "b").json() == {"accepted": 2, "position": 3, "sequence": 2}
        assert problem(publish(server, 3, "b")) == (404, "unknown_stage")
        assert problem(publish(server, 3, "x", "x")) == (422, "invalid_request")
        assert server.http.put(f"{STAGES}/d", json=rows(0, 1)).status_code == 200
        assert server.http.delete(f"{STAGES}/d").status_code == 204
        assert problem(server.http.delete(f"{STAGES}/d")) == (404, "unknown_stage")
        found = server.http.get(TUPLES, params={"metadata": True}).json()["rows"]
        assert [{name: row[name] for name in SCHEMA.names} for row in found] == rows(0, 5)
        assert [row["_position"] for row in found] == list(range(5))
        # Without event time it is the arrival; the rows of a batch arrive at once.
        assert all(row["_time"] == row["_arrival"] == row["_watermark"] for row in found)
        assert len({row["_arrival"] for row in found[:3]}) == 1
        assert server.http.put(f"{STAGES}/e", json=rows(0, 1)).status_code == 200
        assert server.http.delete("/v1/streams/readings").status_code == 204
        create(server)
        assert server.http.get(STAGES).json()["items"] == []


def test_only_the_owner_of_a_stage_publishes_it(tmp_path: Path) -> None:
    with running_server(tmp_path, token="root-secret-of-tests", env=TOKENS) as server:
        create(server)
        server.http.headers["authorization"] = "Bearer writer-secret-of-tests"
        assert server.http.put(f"{STAGES}/mine", json=rows(0, 1)).json()["owner"] is not None
        assert publish(server, 1, "mine").status_code == 200
        server.http.headers["authorization"] = "Bearer root-secret-of-tests"
        assert server.http.put(f"{STAGES}/his", json=rows(1, 2)).status_code == 200
        server.http.headers["authorization"] = "Bearer writer-secret-of-tests"
        assert problem(server.http.put(f"{STAGES}/his", json=rows(1, 2))) == (403, "forbidden")
        assert problem(server.http.delete(f"{STAGES}/his")) == (403, "forbidden")
        assert problem(publish(server, 2, "his")) == (403, "forbidden")
        recorded = (tmp_path / "audit.jsonl").read_text()
        assert '"/v1/streams/readings/stages/mine"' not in recorded, "accepted rows are not recorded"
        assert '"/v1/streams/readings/stages/his"' in recorded
