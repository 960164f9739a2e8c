"""The audit log says who did what to which object with which result, and holds no secret."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from tests.support.servers.running_server import RawProducer, closed_with, eventually, running_server
from tests.support.servers.sensors import PLAN, SENSORS, STREAM, TUPLES
from tests.support.servers.tenants import tenants

TOKENS = {"alice": ("--role", "client"), "roof": ("--role", "feeder")}


def test_changes_and_refusals_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "data" / "audit.jsonl"

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in file.read_text().splitlines()]

    with tenants(tmp_path, TOKENS) as site:
        site.server.http.post(STREAM, json=SENSORS)
        id_ = site.ask("alice", "POST", "/v1/queries", json={"plan": PLAN}).json()["id"]
        site.ask("alice", "PATCH", "/v1/queries/in", json={"state": "paused"})
        site.ask("alice", "GET", STREAM)
        site.ask("alice", "POST", TUPLES, json=[])
        site.ask("roof", "POST", TUPLES, json=[{"n": 1, "x": 1}])
        wrong = {"authorization": "Bearer wrong-secret"}
        site.server.http.get(f"{STREAM}?token=wrong-secret", headers=wrong)
        with RawProducer(site.server, "meter", **site.header("roof")):
            pass
        with site.server.websocket("/v1/feed", **site.header("alice")) as socket:
            closed_with(socket)
        eventually(lambda: any(event["action"] == "close" for event in events()), "the last event")
        told = [
            (event["token"], event["action"], event["object"], event.get("status"), event.get("code"))
            for event in events()
        ]
        secrets = site.secrets.values()
    assert [each for each in told if each[1] != "open"] == [
        ("root", "POST", STREAM, 201, None),
        ("alice", "POST", "/v1/queries", 201, None),
        ("alice", "PATCH", "/v1/queries/in", 200, None),
        ("alice", "POST", TUPLES, 403, "forbidden"),
        (None, "GET", STREAM, 401, "not_authorised"),
        ("roof", "hello", "producer meter", None, None),
        ("alice", "close", "/v1/feed", 4403, None),
    ]
    assert events()[1]["made"] == events()[2]["by_id"] == f"/v1/queries/{id_}"
    assert {event["address"] for event in events()} == {"127.0.0.1"}
    text = file.read_text()
    assert not [secret for secret in (*secrets, "wrong-secret") if secret in text]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_audit_log_can_be_elsewhere_or_off(tmp_path: Path) -> None:
    elsewhere = tmp_path / "logs" / "who.jsonl"
    with running_server(tmp_path / "a", "--audit-log", str(elsewhere)) as server:
        server.http.post(STREAM, json=SENSORS)
    assert json.loads(elsewhere.read_text())["object"] == STREAM
    with running_server(tmp_path / "b", "--audit-log", "off") as server:
        server.http.post(STREAM, json=SENSORS)
    assert not list((tmp_path / "b").glob("audit*"))
