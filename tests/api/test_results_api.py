"""Queries, pulled results and the optimizer over a real server."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.support.servers.hot_readings import SCHEMA, Feed, answered, pulled
from tests.support.servers.running_server import RunningServer, eventually
from tests.support.services.query_service import HOT, HOT_PLAN, WINDOW_PLAN

from mavstream_protocol.tuples import decode_stream, rows_of
from mavstream_protocol.wire.resources import Validation

pytest_plugins = ("tests.support.servers.hot_fixtures",)

ARROW = "application/vnd.apache.arrow.stream"
KEYED = {"Content-Type": "application/json", "Idempotency-Key": "wrong"}


def test_a_created_query_has_location_and_etag(server: RunningServer) -> None:
    made = server.http.post("/v1/queries", json=HOT, headers={"Idempotency-Key": "once"})
    again = server.http.post("/v1/queries", json=HOT, headers={"Idempotency-Key": "once"})
    assert (made.status_code, again.json()["id"]) == (201, made.json()["id"])
    shown = server.http.get(made.headers["location"])
    assert shown.json()["state"] == "running"
    assert shown.headers["etag"] == made.headers["etag"]
    old = {"If-Match": made.headers["etag"]}
    assert server.http.patch(shown.url, json={"state": "paused"}, headers=old).status_code == 200
    refused = server.http.patch(shown.url, json={"state": "running"}, headers=old)
    assert (refused.status_code, refused.json()["code"]) == (412, "wrong_version")
    assert server.http.delete(shown.url).status_code == 204
    assert server.http.get(shown.url).json()["code"] == "unknown_query"


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"name": "a"}, ["plan"]),
        ([], ["body"]),
        ({**HOT, "start_at": 10**40}, ["start_at"]),
        ({**HOT, "name": 10**40}, ["name"]),
        ({**HOT, "qos": {"latency": {}}}, ["qos/latency"]),
        ({**HOT, "plan": {**HOT_PLAN, "root": "nobody"}}, ["plan/root"]),
    ],
)
def test_errors_of_an_invalid_query_have_pointers(
    server: RunningServer, body: Any, pointers: list[str]
) -> None:
    content = json.dumps(body)
    refused = server.http.post("/v1/queries", content=content, headers=KEYED)
    assert refused.status_code == 422, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert [error["pointer"] for error in refused.json()["errors"]] == pointers
    checked = server.http.post("/v1/queries/validate", content=content, headers=KEYED)
    assert (checked.status_code, checked.json()["valid"]) == (200, False)


def test_validation_shows_the_columns_that_a_window_adds(server: RunningServer) -> None:
    found = server.http.post("/v1/queries/validate", json=WINDOW_PLAN).json()
    assert found["valid"]
    assert [field["name"] for field in found["schemas"]["mean"]][-2:] == ["window_start", "window_end"]
    assert Validation.model_fields.keys() == found.keys()


def test_results_are_pulled_as_json_and_as_arrow(server: RunningServer, feed: Feed, query: str) -> None:
    feed.temps(30, 10, 31, 32)
    answered(server, query, 3)
    first = pulled(server, query, limit=2)
    assert [row["temp"] for row in first.rows] == [30, 31]
    assert [row["temp"] for row in pulled(server, query, after=first.next).rows] == [32]
    arrow = server.http.get(f"/v1/queries/{query}/results", headers={"Accept": ARROW})
    assert arrow.headers["content-type"] == ARROW
    assert (arrow.headers["mavstream-next"], arrow.headers["mavstream-epoch"]) == ("2", "1")
    assert [row["temp"] for row in rows_of(decode_stream(SCHEMA, arrow.content))] == [30, 31, 32]


@pytest.mark.parametrize(
    ("params", "accept", "status", "code"),
    [
        ({"after": 99}, "*/*", 422, "offset_ahead"),
        ({"after": -2}, "*/*", 422, "invalid_request"),
        ({"limit": -1}, "*/*", 422, "invalid_request"),
        ({"limit": 10_001}, "*/*", 422, "invalid_request"),
        ({}, "image/png", 406, "not_acceptable"),
    ],
)
def test_an_invalid_pull_is_explained(
    server: RunningServer, query: str, params: dict[str, int], accept: str, status: int, code: str
) -> None:
    refused = server.http.get(f"/v1/queries/{query}/results", params=params, headers={"Accept": accept})
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_qos_and_plans_are_shown(server: RunningServer, query: str) -> None:
    http: httpx.Client = server.http
    assert http.get(f"/v1/queries/{query}/qos").json()["targets"] == []
    plan = http.get(f"/v1/queries/{query}/plan").json()
    assert [operator["name"] for operator in plan["operators"]] == ["in", "hot", "#output"]
    assert {operator["state"] for operator in plan["operators"]} <= {"ready", "run", "suspend"}
    for units in ("operator_paths", "segments", "simplified_segments"):
        (unit,) = plan[units]
        assert unit["operators"] == ["hot", "#output"]
        assert unit["processing_capacity"] > 0
        assert isinstance(unit["memory_release_capacity"], float)
    whole = http.get("/v1/plan", params={"limit": 1}).json()
    assert len(whole["queries"]) == 1
    assert http.get("/v1/queries", params={"state": "running", "class": "default"}).json()["items"]
    assert http.get("/v1/queries", params={"state": "asleep"}).status_code == 422


def test_times_and_targets_are_patched_with_versions_and_pointers(server: RunningServer) -> None:
    http = server.http
    made = http.post("/v1/queries", json={**HOT, "start_at": "2100-01-01T00:00:00Z"})
    path, tag = made.headers["location"], made.headers["etag"]
    assert made.json()["state"] == "scheduled"
    assert [one["id"] for one in http.get("/v1/queries?state=scheduled").json()["items"]] == [
        made.json()["id"]
    ]
    assert 'mavstream_queries{state="scheduled"} 1.0' in http.get("/metrics").text
    moved = http.patch(path, json={"stop_at": "2100-01-02T00:00:00Z"}, headers={"If-Match": tag})
    assert (moved.status_code, moved.headers["etag"]) == (200, '"2"')
    assert moved.json()["spec"]["stop_at"] == "2100-01-02T00:00:00.000000Z"
    assert http.patch(path, json={"stop_at": None}, headers={"If-Match": tag}).status_code == 412
    for body, pointer in (
        ({"stop_at": "2099-01-01T00:00:00Z"}, "stop_at"),
        ({"start_at": "tomorrow"}, "start_at"),
        ({"qos": {"latency": {"p95": "5 apples"}}}, "qos/latency/p95"),
        ({"qos": {"worth": {"readings": "nothing"}}}, "qos/worth/readings"),
        ({"mode": "one_time"}, "mode"),
    ):
        refused = http.patch(path, json=body)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["pointer"].startswith(pointer.rsplit("/", 1)[0]), refused.text
    started = http.patch(path, json={"start_at": None, "stop_at": None})
    assert (started.json()["state"], started.json()["spec"]["start_at"]) == ("running", None)
    again = http.patch(path, json={"start_at": "2100-01-01T00:00:00Z"})
    assert (again.status_code, again.json()["code"]) == (409, "already_started")
    assert http.delete(path).status_code == 204


def test_the_optimizer_acts_on_a_missed_target_and_reports_it(server: RunningServer, feed: Feed) -> None:
    http: httpx.Client = server.http
    settings = {"period": "100ms", "rules": {"policy": False, "rank": False}}
    info = http.put("/v1/optimizer", json=settings).raise_for_status().json()
    assert info["settings"]["period"] == "100ms"
    on = {rule["name"]: rule["enabled"] for rule in info["rules"]}
    assert (on["policy"], on["rank"], on["shedding"]) == (False, False, True)
    qos = {"latency": {"mean": "1us"}, "max_loss": "10%"}
    id_ = http.post("/v1/queries", json={**HOT, "qos": qos}).raise_for_status().json()["id"]
    try:
        feed.temps(*[30] * 100)

        def decided() -> list[dict[str, Any]] | None:
            feed.temps(30, 30)
            page = http.get("/v1/optimizer/decisions", params={"query": id_, "limit": 1}).json()
            return list(page["items"])

        (decision,) = eventually(decided, "a decision")
        assert (decision["rule"], decision["outcome"], decision["ended"]) == ("shedding", "probation", None)
        assert f"latency of query {id_} in class default: mean is" in decision["why"]
        assert http.get("/v1/optimizer").json()["probation"] == decision
        assert http.get("/v1/optimizer").json()["shed"] == {id_: 0.1}
        assert http.get("/v1/optimizer").json()["targets"]["default"]["missed"] == 1
        feed.temps(*[30] * 1000)
        address = f"/v1/queries/{id_}/qos"
        report = eventually(
            lambda: (found := http.get(address).json())["shed"]["rows"] and found, "rows to be shed"
        )
        (target,) = report["targets"]
        assert (target["state"], report["shed"]["share"]) == ("missed", 0.1)
        assert [one["after"] for one in target["history"]][-1] == "missed"
        assert [one["number"] for one in report["actions"]] == [decision["number"]]
        labels = f'class="default",objective="latency",query="{id_}",state="missed"'
        assert f"mavstream_query_target_state{{{labels}}} 1.0" in http.get("/metrics").text
        policy = http.get("/v1/scheduler").json()
        http.put("/v1/scheduler", json=policy).raise_for_status()
        assert http.get("/v1/optimizer").json()["probation"] is None
        counted = 'mavstream_optimizer_decisions_total{outcome="overruled",rule="shedding"} 1.0'
        assert counted in http.get("/metrics").text
    finally:
        http.put("/v1/optimizer", json={"enabled": False}).raise_for_status()
        http.delete(f"/v1/queries/{id_}")
    assert http.get("/v1/optimizer").json()["shed"] == {}


@pytest.mark.parametrize(
    ("body", "pointer", "printed"),
    [
        ({"rules": {"magic": False}}, "rules/magic", "the rules are: policy, rank, "),
        ({"period": "1ms"}, "period", "is not from 100ms to 1m"),
        ({"pace": {"gain": "200%"}}, "pace/gain", "above 100%"),
        ({"specification": {"requirements": []}}, "specification/requirements", "at least 1"),
        ({"speed": 3}, "speed", "is not known here"),
    ],
)
def test_invalid_settings_of_the_optimizer_are_explained(
    server: RunningServer, body: dict[str, Any], pointer: str, printed: str
) -> None:
    answer = server.http.put("/v1/optimizer", json=body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert printed in error["detail"]
    assert server.http.get("/v1/optimizer/decisions", params={"after": "x"}).json()["code"] == "invalid_after"


def test_admission_is_configured_with_the_optimizer(server: RunningServer) -> None:
    http: httpx.Client = server.http

    def policy() -> str | None:
        found = http.post("/v1/queries/validate", json=HOT).json()["admission"]
        return None if found is None else str(found["policy"])

    assert policy() == "warn"
    http.put("/v1/optimizer", json={"admission": "refuse"}).raise_for_status()
    assert policy() == "refuse"
    http.put("/v1/optimizer", json={"admission": "off"}).raise_for_status()
    assert policy() is None
    http.put("/v1/optimizer", json={}).raise_for_status()
    assert policy() == "warn"
