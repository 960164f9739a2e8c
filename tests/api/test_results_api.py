"""Queries and results over a real server: routes, websockets, close codes, subscribers that do not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import SHUT_RDWR, SO_RCVBUF, SOL_SOCKET, socket
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from tests.support.servers.running_server import (
    RawProducer,
    RunningServer,
    closed_with,
    eventually,
    running_server,
)
from tests.support.services.query_service import HOT, HOT_PLAN, READINGS, WINDOW_PLAN
from websockets.sync.client import ClientConnection

from mavstream_protocol import Schema, StreamSpec
from mavstream_protocol.tuples import arrow_schema, decode_message, decode_stream, rows_of
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.resources import PulledResults, Validation

SCHEMA: Schema = StreamSpec.model_validate(READINGS).schema()
ARROW = "application/vnd.apache.arrow.stream"
KEYED = {"Content-Type": "application/json", "Idempotency-Key": "wrong"}
LIMIT = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"MAVSTREAM_RESULT_BYTES": "1MiB", "MAVSTREAM_MAX_SUBSCRIBERS": "40"}
    with running_server(tmp_path_factory.mktemp("data"), env=env) as made:
        made.http.post("/v1/streams", json=READINGS).raise_for_status()
        yield made


class Feed:
    """A producer of readings, one row per second of event time."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self.producer = RawProducer(server, name, "readings")
        self.sequence = 0
        self.clock = 1_000_000

    def temps(self, *temps: int) -> None:
        self.sequence += 1
        rows = [{"at": self.clock + n, "room": "hall", "temp": temp} for n, temp in enumerate(temps)]
        self.clock += 1_000_000
        self.producer.rows("readings", self.sequence, rows)
        self.producer.acked("readings", self.sequence)

    def many(self, first: int, count: int) -> None:
        self.sequence += 1
        columns = [
            pa.array(np.full(count, self.clock), pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(["hall"] * count),
            pa.array(np.arange(first, first + count)),
        ]
        self.clock += 1_000_000
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA))
        self.producer.arrow("readings", self.sequence, batch)
        self.producer.acked("readings", self.sequence)


@pytest.fixture
def feed(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Feed]:
    made = Feed(server, f"p{abs(hash(request.node.name))}")
    yield made
    made.producer.close()


@pytest.fixture
def query(server: RunningServer) -> Iterator[str]:
    """A query that answers every row above 20, removed at the end."""
    made = server.http.post("/v1/queries", json=HOT)
    assert made.status_code == 201, made.text
    yield made.json()["id"]
    server.http.delete(f"/v1/queries/{made.json()['id']}")


def pulled(server: RunningServer, query: str, **params: Any) -> PulledResults:
    answer = server.http.get(f"/v1/queries/{query}/results", params=params)
    assert answer.status_code == 200, answer.text
    return PulledResults.model_validate_json(answer.content)


def removed(server: RunningServer, query: str) -> int:
    """Return how many of the oldest results retention has removed."""
    gap = pulled(server, query, after=-1, limit=1).gap
    return gap[1] if gap is not None else 0


def slow_subscriber(server: RunningServer, path: str) -> ClientConnection:
    """Subscribe with small buffers: by default the system may let a socket hold tens of megabytes."""
    address = httpx.URL(server.url)
    connection = socket()
    connection.setsockopt(SOL_SOCKET, SO_RCVBUF, 64 << 10)
    connection.connect((address.host, address.port))
    return server.websocket(path, sock=connection, max_queue=1)


def answered(server: RunningServer, query: str, count: int) -> None:
    eventually(lambda: server.http.get(f"/v1/queries/{query}").json()["results"] >= count, f"{count} answers")


def subscribers(server: RunningServer) -> int:
    return int(server.http.get("/v1/stats").json()["subscribers"])


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
        ({"limit": 0}, "*/*", 422, "invalid_request"),
        ({"limit": 10_001}, "*/*", 422, "invalid_request"),
        ({}, "text/csv", 406, "not_acceptable"),
    ],
)
def test_an_invalid_pull_is_explained(
    server: RunningServer, query: str, params: dict[str, int], accept: str, status: int, code: str
) -> None:
    refused = server.http.get(f"/v1/queries/{query}/results", params=params, headers={"Accept": accept})
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_rows_are_pushed_as_they_are_answered(server: RunningServer, feed: Feed, query: str) -> None:
    with server.websocket(f"/v1/queries/{query}/results") as socket:
        opened = json.loads(socket.recv(LIMIT))
        assert (opened["type"], opened["query"], opened["next"]) == ("opened", query, 0)
        feed.temps(25)
        rows = json.loads(socket.recv(LIMIT))
        assert (rows["offset"], rows["rows"][0]["temp"]) == (0, 25)
    with server.websocket(f"/v1/queries/{query}/results?format=arrow&after=-1") as socket:
        assert json.loads(socket.recv(LIMIT))["type"] == "opened"
        message = socket.recv(LIMIT)
        assert isinstance(message, bytes)
        header, payload = unseal(message)
        assert json.loads(header) == {"offset": 0, "epoch": 1, "count": 1}
        assert rows_of(decode_message(SCHEMA, payload))[0]["temp"] == 25


def test_reconnecting_at_every_offset_misses_and_repeats_nothing(
    server: RunningServer, feed: Feed, query: str
) -> None:
    got: list[int] = []
    after = "-1"
    for round_ in range(10):
        feed.temps(*range(100 + 7 * round_, 107 + 7 * round_))
        answered(server, query, 7 * (round_ + 1))
        with server.websocket(f"/v1/queries/{query}/results?after={after}") as socket:
            assert json.loads(socket.recv(LIMIT))["next"] == int(after) + 1
            rows = json.loads(socket.recv(LIMIT))
            assert rows["offset"] == int(after) + 1
            # Only some rows count as read: the connection breaks in the middle of a message.
            taken = rows["rows"][: round_ % 3 + 1]
            got += [row["temp"] for row in taken]
            after = str(int(after) + len(taken))
    with server.websocket(f"/v1/queries/{query}/results?after={after}") as socket:
        socket.recv(LIMIT)
        got += [row["temp"] for row in json.loads(socket.recv(LIMIT))["rows"]]
    assert got == list(range(100, 170))


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("nobody/results", 4404, "there is no query 'nobody'"),
        ("{query}/results?after=7", 4400, "answered up to offset -1"),
        ("{query}/results?after=soon", 4400, "after is 'soon'"),
        ("{query}/results?after=-2", 4400, "after is '-2'"),
        ("{query}/results?format=xml", 4400, "give one of rows, arrow"),
        ("{query}/results?on_lag=wait", 4400, "give one of gap, disconnect"),
        ("{query}/results?colour=red", 4400, "'colour' is not known"),
    ],
)
def test_an_invalid_subscription_is_closed_with_a_reason(
    server: RunningServer, query: str, path: str, code: int, words: str
) -> None:
    with server.websocket("/v1/queries/" + path.format(query=query)) as socket:
        closed, reason = closed_with(socket)
    assert closed == code
    assert words in reason


def test_more_subscribers_than_allowed_are_closed_and_others_stay(
    server: RunningServer, feed: Feed, query: str
) -> None:
    path = f"/v1/queries/{query}/results"
    with ExitStack() as stack:
        sockets = [stack.enter_context(server.websocket(path)) for _ in range(40)]
        for socket in sockets:
            assert json.loads(socket.recv(LIMIT))["type"] == "opened"
        with server.websocket(path) as one_more:
            assert closed_with(one_more)[0] == 4429
        feed.temps(50)
        assert [json.loads(socket.recv(LIMIT))["offset"] for socket in sockets] == [0] * 40
    eventually(lambda: subscribers(server) == 0, "all subscribers to be gone")


def test_a_subscriber_that_disconnects_abruptly_is_detected(server: RunningServer, query: str) -> None:
    with server.websocket(f"/v1/queries/{query}/results") as socket:
        socket.recv(LIMIT)
        assert subscribers(server) == 1
        socket.socket.shutdown(SHUT_RDWR)
        eventually(lambda: subscribers(server) == 0, "it to be counted out")


def test_the_end_of_a_query_closes_its_subscriptions(server: RunningServer, query: str) -> None:
    with server.websocket(f"/v1/queries/{query}/results") as socket:
        socket.recv(LIMIT)
        server.http.patch(f"/v1/queries/{query}", json={"state": "stopped"})
        assert json.loads(socket.recv(LIMIT)) == {"type": "closed", "state": "stopped", "detail": ""}
        assert closed_with(socket)[0] == 1000


def test_subscribers_that_do_not_read_block_no_other_and_get_a_gap(
    server: RunningServer, feed: Feed, query: str
) -> None:
    path = f"/v1/queries/{query}/results"
    rows, frame = 600_000, 20_000
    with (
        slow_subscriber(server, path) as patient,
        slow_subscriber(server, f"{path}?on_lag=disconnect") as strict,
        server.websocket(f"{path}?format=arrow") as quick,
    ):
        json.loads(quick.recv(LIMIT))
        got = 0
        for first in range(0, rows, frame):
            feed.many(first + 100, frame)
            while got < first + frame:
                message = quick.recv(LIMIT)
                assert isinstance(message, bytes), message
                got += int(json.loads(unseal(message)[0])["count"])
        # More than the buffers of the sockets hold, so that both have missed rows.
        eventually(lambda: removed(server, query) > rows // 2, "half of the results to be removed")
        assert closed_with(strict)[0] == 4410
        position, gaps = 0, 0
        while position < rows:
            message = json.loads(patient.recv(LIMIT))
            if message["type"] == "gap":
                assert (message["start"], message["reason"]) == (position, "retention")
                position, gaps = message["stop"], gaps + 1
            elif message["type"] == "rows":
                assert message["offset"] == position
                position += len(message["rows"])
        assert gaps >= 1


def test_a_stopping_server_closes_subscriptions_with_going_away(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=READINGS).raise_for_status()
        query = server.http.post("/v1/queries", json=HOT).json()["id"]
        with server.websocket(f"/v1/queries/{query}/results") as socket:
            socket.recv(LIMIT)
            assert server.stop() == 0
            assert closed_with(socket)[0] == 1001


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
