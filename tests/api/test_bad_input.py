"""Bad input: each kind gets its own problem or close code, and no accepted row is lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    closed_with,
    eventually,
    running_server,
)
from tests.support.servers.sensors import PLAN, SENSORS, STREAM, TUPLES, problem

from mavstream_protocol.wire.envelope import seal

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    limits = ("--max-body-bytes", "1MiB", "--max-frame-bytes", "1MiB")
    with running_server(tmp_path_factory.mktemp("data"), *limits) as running:
        assert running.http.post("/v1/streams", json=SENSORS).status_code == 201
        yield running
        # After all tests: no internal error, the engine never died, and the service works.
        assert not [event for event in running.events() if event["level"] == "error"]
        assert running.http.get("/v1/stats").json()["engine_restarts"] == 0
        answer = running.http.post("/v1/streams/sensors/tuples", json=[{"n": 1, "x": 1}])
        assert answer.json()["accepted"] == 1


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "status", "code"),
    [
        # Bodies that cannot be read
        ("POST", STREAM, JSON, b'{"name": ', 400, "invalid_json"),
        ("POST", STREAM, JSON, b"", 422, "invalid_request"),
        ("POST", STREAM, JSON, b"\xff\xfe", 400, "invalid_json"),
        ("POST", STREAM, JSON, b'{"name": "\xff"}', 400, "unreadable_body"),
        ("POST", STREAM, JSON, b"[" * 100_000, 400, "unreadable_body"),
        ("POST", STREAM, "text/plain", b"{}", 415, "unsupported_media_type"),
        ("POST", STREAM, "", b"{}", 415, "unsupported_media_type"),
        ("POST", STREAM, JSON, b" " * (1 << 20) + b"{}", 413, "body_too_large"),
        ("POST", TUPLES, JSON, b"[" + b" " * (1 << 20) + b"]", 413, "body_too_large"),
        ("POST", TUPLES, "text/csv", b"1,2", 415, "unsupported_media_type"),
        ("POST", "/v1/queries", "text/plain", b"{}", 415, "unsupported_media_type"),
        # Objects that are not valid
        ("POST", STREAM, JSON, b"[]", 422, "invalid_request"),
        ("POST", STREAM, JSON, b"null", 422, "invalid_request"),
        ("POST", STREAM, JSON, b'{"name": "\\ud800", "fields": []}', 400, "invalid_json"),
        ("POST", STREAM, JSON, b'{"name": "a", "fields": [], "quota": NaN}', 400, "invalid_json"),
        ("POST", "/v1/queries", JSON, b"[]", 422, "invalid_query"),
        ("POST", "/v1/queries", JSON, b'{"name": "\\udc00"}', 400, "invalid_json"),
        ("PUT", "/v1/classes/a", JSON, b'{"name": "a", "priority": 1001}', 422, "invalid_request"),
        ("PUT", "/v1/classes/a", JSON, b'{"name": "a", "priority": 1.5}', 422, "invalid_request"),
        ("PUT", "/v1/classes/a", JSON, b'{"name": "a", "latency": 5}', 422, "invalid_request"),
        ("PUT", "/v1/classes/a", JSON, b'{"name": "a", "latency": "0s"}', 422, "invalid_request"),
        ("PUT", "/v1/classes/a", JSON, b'{"name": "b"}', 400, "name_mismatch"),
        ("PUT", "/v1/classes/1", JSON, b'{"name": "b"}', 422, "invalid_request"),
        ("PUT", "/v1/scheduler", JSON, b'{"policy": "best"}', 422, "invalid_policy"),
        ("PUT", "/v1/scheduler", JSON, b'{"policy": "rr", "options": {"\\ud800": 1}}', 400, "invalid_json"),
        # Unknown names
        ("GET", "/v1/streams/nope", None, None, 404, "unknown_stream"),
        ("DELETE", "/v1/streams/nope", None, None, 404, "unknown_stream"),
        ("PATCH", "/v1/streams/nope", JSON, b"{}", 404, "unknown_stream"),
        ("POST", "/v1/streams/nope/tuples", JSON, b"[]", 404, "unknown_stream"),
        ("POST", "/v1/streams/nope/complete", JSON, None, 404, "unknown_stream"),
        ("GET", "/v1/classes/nope", None, None, 404, "unknown_class"),
        ("GET", "/v1/queries/nope", None, None, 404, "unknown_query"),
        ("GET", "/v1/queries/nope/results", None, None, 404, "unknown_query"),
        ("GET", "/v1/nothing", None, None, 404, "unknown_route"),
        ("GET", "/v1/streams/", None, None, 404, "unknown_route"),
        ("PATCH", "/v1/streams", JSON, b"{}", 405, "wrong_method"),
        ("GET", "/v1/streams?limit=0", None, None, 422, "invalid_request"),
        ("GET", "/v1/streams?limit=x", None, None, 422, "invalid_request"),
        ("GET", "/v1/feed", None, None, 426, "needs_upgrade"),
        # Tuples
        ("POST", TUPLES, JSON, b"[{", 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b"7", 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b"[7]", 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": "1", "x": 1}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1, "x": NaN}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1, "x": Infinity}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1, "x": 1e999}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 9223372036854775808, "x": 1}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1, "x": 1, "y": 1}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1, "x": 1, "at": "yesterday"}]', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'{"n": [1, 2], "x": [1]}', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'{"n": [1]}', 422, "invalid_tuples"),
        ("POST", TUPLES, JSON, b'[{"n": 1, "x": 1, "t": "\\ud800"}]', 422, "invalid_tuples"),
        ("POST", TUPLES, NDJSON, b'{"n": 1, "x": 1}\n{"n": ', 422, "invalid_tuples"),
        ("POST", TUPLES, ARROW, b"nonsense", 422, "invalid_tuples"),
        ("POST", TUPLES, ARROW, b"", 422, "invalid_tuples"),
    ],
)
def test_a_bad_request_gets_its_own_problem(
    server: RunningServer,
    method: str,
    path: str,
    kind: str | None,
    body: bytes | None,
    status: int,
    code: str,
) -> None:
    before = server.http.get("/v1/streams/sensors").json()["position"]
    headers = {"content-type": kind} if kind else {}
    answer = server.http.request(method, path, content=body, headers=headers)
    assert problem(answer) == (status, code), answer.text
    assert server.http.get("/v1/streams/sensors").json()["position"] == before


def test_the_answer_to_a_wrong_method_names_the_allowed_ones(server: RunningServer) -> None:
    answer = server.http.patch("/v1/streams", json={})
    assert answer.headers["allow"] == "GET, POST"


def test_a_problem_has_a_pointer_to_the_error(server: RunningServer) -> None:
    broken = server.http.post(STREAM, content=b'{"name":\n  nope}', headers={"content-type": JSON})
    assert "line 2, column 3" in broken.json()["detail"]
    fields = [{"name": "a", "type": "int"}, {"name": "2", "type": "text"}]
    wrong = server.http.post(STREAM, json={"name": "s", "fields": fields, "colour": 1})
    found = {item["pointer"]: item for item in wrong.json()["errors"]}
    assert set(found) == {"fields/1/name", "fields/1/type", "colour"}
    assert found["colour"]["code"] == "unknown_key"
    row = server.http.post(TUPLES, json=[{"n": 1, "x": 1}, {"n": 1.5, "x": 1}])
    assert [item["pointer"] for item in row.json()["errors"]] == ["rows/1/n"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Producer": "p"}, 400, "producer_and_sequence"),
        ({"Sequence": "1"}, 400, "producer_and_sequence"),
        ({"Producer": "p-1", "Sequence": "1"}, 422, "invalid_request"),
        ({"Producer": "p", "Sequence": "0"}, 422, "invalid_request"),
        ({"Producer": "p", "Sequence": "9223372036854775808"}, 422, "invalid_request"),
        ({"Producer": "p", "Sequence": "7"}, 409, "sequence_gap"),
        ({"Idempotency-Key": ""}, 422, "invalid_request"),
    ],
)
def test_headers_of_tuples_are_checked(
    server: RunningServer, headers: dict[str, str], status: int, code: str
) -> None:
    answer = server.http.post(TUPLES, json=[], headers=headers)
    assert problem(answer) == (status, code)


def test_a_chunked_body_above_the_limit_is_refused(server: RunningServer) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 16)

    answer = server.http.post(TUPLES, content=endless(), headers={"content-type": JSON})
    assert problem(answer) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("messages", "code", "reason"),
    [
        (["nonsense"], 4400, "not JSON"),
        (["[]"], 4400, "a JSON object"),
        (["{}"], 4400, "in state 'new' expected hello, received a message without 'type'"),
        (['{"type": "data"}'], 4400, "in state 'new' expected hello, received 'data'"),
        (['{"type": "hello"}'], 4400, "producer"),
        (['{"type": "hello", "producer": "no-name"}'], 4400, "not an identifier"),
        (['{"type": "hello", "producer": "p", "colour": 1}'], 4400, "colour"),
        ([b"\0\0\0\0"], 4400, "expected hello, received a binary message"),
        (["HELLO", '{"type": "hello", "producer": "p"}'], 4400, "expected data or end, received 'hello'"),
        (["HELLO", '{"type": "ack"}'], 4400, "expected data or end, received 'ack'"),
        (["HELLO", '{"type": "data", "rows": []}'], 4400, "'stream'"),
        (["HELLO", '{"type": "data", "stream": "sensors", "rows": []}'], 4400, "'sequence'"),
        (["HELLO", '{"type": "data", "stream": "sensors", "sequence": 0, "rows": []}'], 4400, "'sequence'"),
        (["HELLO", '{"type": "data", "stream": "sensors", "sequence": true}'], 4400, "'sequence'"),
        (["HELLO", '{"type": "end"}'], 4400, "'stream'"),
        (["HELLO", b"\1"], 4400, "4-byte little-endian length"),
        (["HELLO", b"\xff\xff\xff\xffabc"], 4400, "4-byte little-endian length"),
        (["HELLO", seal(b"{", b"")], 4400, "not JSON"),
        (["HELLO", " " * (1 << 20) + "{}"], 1009, ""),
        (["HELLO", b" " * ((1 << 20) + 1)], 1009, ""),
    ],
)
def test_an_invalid_message_closes_the_feed(
    server: RunningServer, messages: list[str | bytes], code: int, reason: str
) -> None:
    with server.websocket("/v1/feed") as feed:
        for message in messages:
            feed.send('{"type": "hello", "producer": "bad"}' if message == "HELLO" else message)
        closed, why = closed_with(feed)
        assert (closed, reason in why) == (code, True), why
        assert len(why.encode()) <= 123


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"stream": "nope", "rows": []}, "unknown_stream"),
        ({"rows": [{"n": "x", "x": 1}]}, "invalid_tuples"),
        ({"rows": [{"n": 10**30, "x": 1}]}, "invalid_tuples"),
        ({"rows": 7}, "invalid_tuples"),
        ({"rows": None}, "invalid_tuples"),
        ({"columns": {"n": [1, 2], "x": [1]}}, "invalid_tuples"),
        ({"columns": {"n": [1]}}, "invalid_tuples"),
        ({"columns": [1]}, "invalid_tuples"),
        ({}, "invalid_tuples"),
        ({"rows": [], "columns": {}}, "invalid_tuples"),
        ({"rows": [], "colour": 1}, "invalid_tuples"),
        ({"rows": [], "sequence": 3}, "sequence_gap"),
    ],
)
def test_an_invalid_frame_is_rejected_as_a_whole_and_the_feed_continues(
    server: RunningServer, data: dict[str, Any], code: str
) -> None:
    with RawProducer(server, "framing", "sensors") as producer:
        last = producer.welcome["streams"]["sensors"]["last_sequence"]
        producer.rows("sensors", last + 1, [{"n": 1, "x": 0.5}])
        producer.acked("sensors", last + 1)
        producer.send(type="data", **{"stream": "sensors", "sequence": last + 2, **_shifted(data, last)})
        reject = producer.receive()
        assert (reject["type"], reject["problem"]["code"]) == ("reject", code), reject
        assert reject["expected"] == (1 if data.get("stream") == "nope" else last + 2)
        assert reject["problem"]["detail"]
        producer.rows("sensors", last + 2, [{"n": 2, "x": 0.5}])
        producer.acked("sensors", last + 2)


def _shifted(data: dict[str, Any], last: int) -> dict[str, Any]:
    return {**data, "sequence": data["sequence"] + last} if "sequence" in data else data


def test_an_invalid_arrow_frame_is_rejected(server: RunningServer) -> None:
    with RawProducer(server, "arrows", "sensors") as producer:
        last = producer.welcome["streams"]["sensors"]["last_sequence"]
        header = json.dumps({"stream": "sensors", "sequence": last + 1}).encode()
        wrong = pa.RecordBatch.from_pydict({"n": [1]}).serialize().to_pybytes()
        for payload in (b"", b"nonsense", wrong):
            producer.socket.send(seal(header, payload))
            assert producer.receive()["problem"]["code"] == "invalid_tuples"
        strange = json.dumps({"stream": "sensors", "sequence": last + 1, "colour": 1}).encode()
        producer.socket.send(seal(strange, b""))
        assert producer.receive()["problem"]["errors"][0]["code"] == "unknown_key"


def test_a_repeated_frame_is_acked_again_and_not_appended_twice(server: RunningServer) -> None:
    with RawProducer(server, "again", "sensors") as producer:
        last = producer.welcome["streams"]["sensors"]["last_sequence"]
        before = server.http.get("/v1/streams/sensors").json()["position"]
        for _ in range(3):
            producer.rows("sensors", last + 1, [{"n": 1, "x": 0.5}])
            assert producer.receive()["sequence"] == last + 1
        assert server.http.get("/v1/streams/sensors").json()["position"] == before + 1


def test_a_second_producer_of_the_same_name_takes_over(server: RunningServer) -> None:
    with RawProducer(server, "twin", "sensors") as first:
        first.rows("sensors", 1, [{"n": 1, "x": 0.5}])
        first.acked("sensors", 1)
        with RawProducer(server, "twin", "sensors") as second:
            code, reason = closed_with(first.socket)
            assert (code, "has taken over" in reason) == (4409, True)
            assert second.welcome["streams"]["sensors"]["last_sequence"] == 1
            second.rows("sensors", 2, [{"n": 2, "x": 0.5}])
            second.acked("sensors", 2)


def test_half_closed_and_broken_sockets_are_released(server: RunningServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.sendall(b"POST /v1/streams HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(4096):
            pass
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.sendall(b"NONSENSE\r\n\r\n")
        assert b" 400 " in raw.recv(4096)
    producer = RawProducer(server, "broken", "sensors")
    producer.socket.socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: server.http.get("/v1/stats").json()["producers"] == 0, "the producer to be let go")
    producer.close()


def test_an_action_in_the_wrong_state_is_refused(server: RunningServer) -> None:
    query = server.http.post("/v1/queries", json={"plan": PLAN}).json()["id"]
    assert server.http.patch(f"/v1/queries/{query}", json={"state": "stopped"}).status_code == 200
    answer = server.http.patch(f"/v1/queries/{query}", json={"state": "running"})
    assert problem(answer) == (409, "wrong_state")
    wrong = server.http.patch(f"/v1/queries/{query}", json={"class": "nope"})
    assert wrong.status_code in (409, 422)
    old = server.http.delete(f"/v1/queries/{query}", headers={"if-match": '"99"'})
    assert problem(old) == (412, "wrong_version")
    strange = server.http.delete(f"/v1/queries/{query}", headers={"if-match": "latest"})
    assert problem(strange) == (400, "invalid_etag")


@pytest.mark.parametrize(
    "address", ["/", "/v1/feeds", "/v1/feed/", "/v1/streams", "/v1/queries/q/result", f"/{'x' * 500}"]
)
def test_a_websocket_to_an_unknown_path_is_closed_with_the_known_ones(
    server: RunningServer, address: str
) -> None:
    with server.websocket(address) as lost:
        code, reason = closed_with(lost)
    expected = f"there are /v1/feed and /v1/queries/ID/results, and no websocket at {address}"
    assert (code, reason[:100]) == (4404, expected[:100])


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("/v1/queries/nope/results", 4404),
        ("/v1/queries/{query}/results?after=x", 4400),
        ("/v1/queries/{query}/results?after=99999", 4400),
        ("/v1/queries/{query}/results?format=csv", 4400),
        ("/v1/queries/{query}/results?colour=1", 4400),
    ],
)
def test_an_invalid_subscription_is_closed_with_a_reason(
    server: RunningServer, address: str, code: int
) -> None:
    query = server.http.post("/v1/queries", json={"plan": PLAN}).json()["id"]
    with server.websocket(address.format(query=query)) as subscriber:
        closed, reason = closed_with(subscriber)
        assert (closed, bool(reason)) == (code, True)
