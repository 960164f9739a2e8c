"""A real server process over real sockets: life, death and everything in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import websockets
from servers import PATIENCE, RawProducer, RunningServer, closed_with, eventually, running_server
from websockets.exceptions import ConnectionClosed

from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_rows, encode_lines, encode_stream

READINGS: dict[str, Any] = {
    "name": "readings",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "home", "type": "string", "nullable": True},
        {"name": "temperature", "type": "float"},
        {"name": "open", "type": "bool"},
    ],
}
SCHEMA = StreamSpec.model_validate(READINGS).schema()


def plan(where: str = "n >= 0") -> dict[str, Any]:
    return {
        "root": "out",
        "nodes": {
            "in": {"op": "source", "stream": "readings"},
            "out": {"op": "select", "input": "in", "where": where},
        },
    }


def row(n: int) -> dict[str, Any]:
    return {"n": n, "home": None if n % 3 == 0 else f"h{n}", "temperature": n / 2, "open": n % 2 == 0}


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [row(n) for n in range(start, stop)]


def batch(start: int, stop: int) -> pa.RecordBatch:
    return decode_rows(SCHEMA, rows(start, stop))


def columns(start: int, stop: int) -> dict[str, list[Any]]:
    return {name: [each[name] for each in rows(start, stop)] for name in SCHEMA.names}


def register(server: RunningServer, **spec: Any) -> str:
    answer = server.http.post("/v1/queries", json={"name": "all", "plan": plan(), **spec})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def create(server: RunningServer, **changes: Any) -> None:
    assert server.http.post("/v1/streams", json={**READINGS, **changes}).status_code == 201


def pull(server: RunningServer, query: str, count: int) -> list[dict[str, Any]]:
    """Wait for so many answers and return all."""
    found: list[dict[str, Any]] = []

    def more() -> bool:
        after = len(found) - 1
        part = server.http.get(
            f"/v1/queries/{query}/results", params={"after": after, "limit": 10_000}
        ).json()
        assert part.get("gap") is None
        found.extend(part["rows"])
        return len(found) >= count

    eventually(more, f"{count} answers of {query}")
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path / "data") as running:
        yield running


def test_rows_fed_in_every_encoding_come_out_as_they_went_in(server: RunningServer) -> None:
    create(server)
    query = register(server)
    with server.websocket(f"/v1/queries/{query}/results") as subscriber:
        opened = json.loads(subscriber.recv(timeout=PATIENCE))
        assert (opened["type"], opened["next"], opened["epoch"]) == ("opened", 0, 1)
        with RawProducer(server, "p", "readings") as producer:
            assert producer.welcome["streams"]["readings"]["last_sequence"] == 0
            producer.rows("readings", 1, rows(0, 10))
            producer.columns("readings", 2, columns(10, 20))
            producer.arrow("readings", 3, batch(20, 30))
            assert producer.acked("readings", 3)["credit"] > 0
        url = "/v1/streams/readings/tuples"
        for start, kind, body in (
            (30, "application/json", json.dumps(rows(30, 40)).encode()),
            (40, "application/json", json.dumps(columns(40, 50)).encode()),
            (50, "application/x-ndjson", encode_lines(batch(50, 60))),
            (60, "application/vnd.apache.arrow.stream", encode_stream(SCHEMA, [batch(60, 70)])),
        ):
            answer = server.http.post(url, content=body, headers={"content-type": kind})
            assert answer.json() == {"accepted": 10, "position": start, "sequence": None}
        heard: list[dict[str, Any]] = []
        while len(heard) < 70:
            message = json.loads(subscriber.recv(timeout=PATIENCE))
            assert (message["type"], message["offset"]) == ("rows", len(heard))
            heard += message["rows"]
    assert heard == rows(0, 70)
    assert pull(server, query, 70) == heard
    info = server.http.get("/v1/streams/readings").json()
    assert (info["position"], info["producers"]) == (70, {"p": 3})


def test_a_stream_that_is_complete_finishes_its_queries(server: RunningServer) -> None:
    create(server)
    query = register(server)
    server.http.post("/v1/streams/readings/tuples", json=rows(0, 5))
    assert server.http.post("/v1/streams/readings/complete").status_code == 200
    with server.websocket(f"/v1/queries/{query}/results") as subscriber:
        assert closed_with(subscriber)[0] == 1000
    assert server.http.get(f"/v1/queries/{query}").json()["state"] == "finished"
    answer = server.http.post("/v1/streams/readings/tuples", json=rows(5, 6))
    assert (answer.status_code, answer.json()["code"]) == (409, "stream_complete")


def test_windows_on_arrival_time_close_though_nothing_more_arrives(server: RunningServer) -> None:
    create(server)
    aggregate = {
        "op": "aggregate",
        "input": "in",
        "window": {"kind": "tumbling", "size": "100ms"},
        "compute": {"n": "count(*)"},
    }
    nodes = {"in": {"op": "source", "stream": "readings"}, "out": aggregate}
    query = register(server, plan={"root": "out", "nodes": nodes})
    # The window in which the query started is not answered: rows are fed until one of a later window is.
    place = iter(range(10**6))

    def answered() -> list[dict[str, Any]]:
        n = next(place)
        server.http.post("/v1/streams/readings/tuples", json=[row(n)])
        found: list[dict[str, Any]] = server.http.get(f"/v1/queries/{query}/results").json()["rows"]
        return found

    assert eventually(answered, "a window to close")[0]["n"] >= 1


class Feeding(threading.Thread):
    """Feeds frames of ten rows until its connection breaks, and knows what was acked."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(daemon=True)
        self.producer = RawProducer(server, "p", "readings")
        self.acked = 0
        self.sent = 0

    def run(self) -> None:
        try:
            while True:
                while self.sent - self.acked < 50:
                    self.sent += 1
                    self.producer.columns("readings", self.sent, columns(self.sent * 10 - 10, self.sent * 10))
                self.acked = self.producer.hear()["sequence"]
        except (ConnectionClosed, OSError):
            pass


def test_what_was_acked_survives_the_death_of_the_whole_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data) as server:
        create(server)
        server.http.put("/v1/classes/alarms", json={"name": "alarms", "priority": 6})
        server.http.put("/v1/scheduler", json={"policy": "wrr", "options": {"tuples": 99}})
        query = register(server, **{"class": "alarms"})
        engine = server.engine_pid
        feeding = Feeding(server)
        feeding.start()
        eventually(lambda: feeding.acked > 100, "acks under load")
        server.kill()
        feeding.join(PATIENCE)
        eventually(lambda: not Path(f"/proc/{engine}").exists(), "the engine to go with its server")
    with running_server(data) as server:
        assert server.http.get("/v1/classes/alarms").json()["priority"] == 6
        chosen = {"policy": "wrr", "options": {"tuples": 99}, "sources": None}
        assert server.http.get("/v1/scheduler").json() == chosen
        eventually(lambda: server.http.get(f"/v1/queries/{query}").json()["state"] == "running", "the query")
        assert server.http.get(f"/v1/queries/{query}").json()["epoch"] == 2
        with RawProducer(server, "p", "readings") as producer:
            last = producer.welcome["streams"]["readings"]["last_sequence"]
            assert feeding.acked <= last <= feeding.sent
            assert server.http.get("/v1/streams/readings").json()["position"] == 10 * last
            # The last one again, as a producer does that never saw its ack.
            for sequence in range(last, last + 10):
                producer.columns("readings", sequence, columns(sequence * 10 - 10, sequence * 10))
            producer.acked("readings", last + 9)
        everything = register(server, name="everything", **{"from": "earliest"})
        count = 10 * (last + 9)
        assert [each["n"] for each in pull(server, everything, count)] == list(range(count))


def test_the_service_goes_on_when_the_engine_dies(server: RunningServer) -> None:
    create(server)
    query = register(server)
    engine = server.engine_pid
    assert engine is not None
    with (
        server.websocket(f"/v1/queries/{query}/results") as subscriber,
        RawProducer(server, "p", "readings") as producer,
    ):
        producer.rows("readings", 1, rows(0, 5))
        producer.acked("readings", 1)
        heard = [json.loads(subscriber.recv(timeout=PATIENCE)) for _ in range(2)]
        assert [each["type"] for each in heard] == ["opened", "rows"]
        os.kill(engine, signal.SIGKILL)
        unready = eventually(lambda: _unready(server), "the server to say that it is not ready")
        assert (unready.status_code, unready.json()["code"]) == (503, "engine_starting")
        producer.rows("readings", 2, rows(5, 10))
        producer.acked("readings", 2)
        eventually(lambda: server.ready, "the server to be ready again")
        gap = json.loads(subscriber.recv(timeout=PATIENCE))
        assert (gap["type"], gap["reason"], gap["epoch"]) == ("gap", "restart", 2)
        assert gap["start"] == gap["stop"] == 5
        producer.rows("readings", 3, rows(10, 15))
        producer.acked("readings", 3)
        again = json.loads(subscriber.recv(timeout=PATIENCE))
        assert (again["type"], again["offset"], again["epoch"]) == ("rows", 5, 2)
        assert again["rows"] == rows(10, 15)
    assert server.engine_pid != engine
    assert server.http.get("/v1/stats").json()["engine_restarts"] == 1
    assert "mavstream_engine_restarts_total 1.0" in server.http.get("/metrics").text


def _unready(server: RunningServer) -> httpx.Response | None:
    answer = server.http.get("/readyz")
    return None if answer.status_code == 200 else answer


def test_fifty_producers_feed_one_stream(server: RunningServer) -> None:
    create(server)
    query = register(server)

    async def feed(number: int) -> None:
        url = f"ws{server.url.removeprefix('http')}/v1/feed"
        async with websockets.connect(url, compression=None, open_timeout=PATIENCE) as socket:
            await socket.send(
                json.dumps({"type": "hello", "producer": f"p{number}", "streams": ["readings"]})
            )
            await socket.recv()
            for sequence in range(1, 21):
                start = number * 200 + (sequence - 1) * 10
                data = {"type": "data", "stream": "readings", "sequence": sequence}
                await socket.send(json.dumps({**data, "rows": rows(start, start + 10)}))
            last = 0
            while last < 20:
                ack = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
                assert ack["type"] == "ack"
                last = ack["sequence"]

    async def feed_all() -> None:
        await asyncio.gather(*map(feed, range(50)))

    asyncio.run(feed_all())
    assert server.http.get("/v1/streams/readings").json()["position"] == 10_000
    found = pull(server, query, 10_000)
    assert sorted(each["n"] for each in found) == list(range(10_000))


def test_a_stop_is_graceful_and_told(server: RunningServer) -> None:
    create(server)
    query = register(server)
    with server.websocket(f"/v1/queries/{query}/results") as subscriber, RawProducer(server, "p") as producer:
        subscriber.recv(timeout=PATIENCE)
        producer.rows("readings", 1, rows(0, 3))
        producer.acked("readings", 1)
        engine = server.engine_pid
        server.process.send_signal(signal.SIGTERM)
        assert closed_with(producer.socket)[0] == 1001
        assert closed_with(subscriber)[0] == 1001
        assert server.process.wait(PATIENCE) == 0
    assert not Path(f"/proc/{engine}").exists()
    assert [event["event"] for event in server.events()][-1] == "stopped"


def test_a_server_that_syncs_acks_too(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", "--delivery", "sync") as server:
        create(server)
        with RawProducer(server, "p", "readings") as producer:
            assert producer.welcome["delivery"] == "sync"
            for sequence in range(1, 6):
                producer.rows("readings", sequence, rows(sequence * 10 - 10, sequence * 10))
            producer.acked("readings", 5)
        assert server.http.post("/v1/streams/readings/tuples", json=rows(50, 51)).json()["position"] == 50


def refused(*arguments: str) -> str:
    """Start a server that cannot run and return what it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "mavstream_server.commands", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAVSTREAM_")},
    )
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    return ended.stderr


def test_a_server_without_tokens_refuses_to_be_reached_by_others(tmp_path: Path) -> None:
    said = refused("--data", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert "no token is configured" in said


def test_two_servers_do_not_share_a_directory_or_a_port(server: RunningServer, tmp_path: Path) -> None:
    said = refused("--data", str(server.data), "--port", "0")
    assert f"in use by another server (process {server.pid})" in said
    port = server.url.rpartition(":")[2]
    said = refused("--data", str(tmp_path / "other"), "--port", port)
    assert f"cannot listen on 127.0.0.1 port {port}" in said


def test_settings_that_make_no_sense_are_told_in_one_line(tmp_path: Path) -> None:
    assert "there is no policy 'best'" in refused("--data", str(tmp_path), "--policy", "best")
    assert "--log: expected json or text" in refused("--data", str(tmp_path), "--log", "xml")


def test_classes_have_versions_and_reach_the_engine(server: RunningServer) -> None:
    url = "/v1/classes/alarms"
    first = server.http.put(url, json={"name": "alarms", "priority": 6})
    assert (first.status_code, first.headers["etag"]) == (200, '"1"')
    late = server.http.put(url, json={"name": "alarms", "priority": 7}, headers={"if-match": '"2"'})
    assert (late.status_code, late.json()["code"]) == (412, "wrong_version")
    second = server.http.put(url, json={"name": "alarms", "priority": 7}, headers={"if-match": '"1"'})
    assert (second.status_code, second.headers["etag"]) == (200, '"2"')
    assert server.http.get(url).json()["priority"] == 7
    assert server.http.get("/v1/stats").json()["classes"]["alarms"]["priority"] == 7
    other = server.http.put(url, json={"name": "other"})
    assert (other.status_code, other.json()["code"]) == (400, "name_mismatch")


def test_creation_with_a_key_happens_once(server: RunningServer) -> None:
    key = {"idempotency-key": "k1"}
    answers = [server.http.post("/v1/streams", json=READINGS, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    other = server.http.post("/v1/streams", json={**READINGS, "name": "others"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    plain = server.http.post("/v1/streams", json=READINGS)
    assert (plain.status_code, plain.json()["code"]) == (409, "stream_exists")


def test_lists_come_in_parts(server: RunningServer) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        create(server, name=name)
    seen: list[str] = []
    after: str | None = None
    while True:
        page = server.http.get(
            "/v1/streams", params={"limit": 2, **({"after": after} if after else {})}
        ).json()
        seen += [item["name"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == names


def test_streams_go_when_nobody_reads_them(server: RunningServer) -> None:
    create(server)
    query = register(server)
    held = server.http.delete("/v1/streams/readings")
    assert (held.status_code, held.json()["code"]) == (409, "stream_in_use")
    assert query in held.json()["detail"]
    assert server.http.delete(f"/v1/queries/{query}").status_code == 204
    assert server.http.delete("/v1/streams/readings").status_code == 204
    assert not (server.data / "streams" / "readings").exists()
    create(server)
    assert server.http.post("/v1/streams/readings/tuples", json=rows(0, 1)).json()["position"] == 0


def test_metrics_name_query_class_and_operator(server: RunningServer) -> None:
    create(server)
    query = register(server)
    server.http.post("/v1/streams/readings/tuples", json=rows(0, 7))
    pull(server, query, 7)
    text = server.http.get("/metrics").text
    for line in (
        'mavstream_tuples_in_total{stream="readings"} 7.0',
        'mavstream_tuples_acked_total{stream="readings"} 7.0',
        f'mavstream_results_total{{class="default",query="{query}"}} 7.0',
        f'mavstream_latency_seconds_count{{class="default",query="{query}"}} 7.0',
        'mavstream_class_latency_seconds_bucket{class="default",le="+Inf"} 7.0',
        f'mavstream_operator_queued_rows{{class="default",operator="out",query="{query}"}} 0.0',
        'mavstream_queries{state="running"} 1.0',
        "mavstream_engine_up 1.0",
        "mavstream_engine_restarts_total 0.0",
    ):
        assert line in text, line


TOKENS = {"MAVSTREAM_TOKENS": "admin:root-secret,client:reader-secret,feeder:writer-secret"}
ROLES = {"admin": "root-secret", "client": "reader-secret", "feeder": "writer-secret"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("guarded")
    with running_server(data, "--host", "0.0.0.0", token="root-secret", env=TOKENS) as running:
        create(running)
        yield running


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/v1/streams", None, {"client", "feeder"}),
        ("POST", "/v1/streams/readings/tuples", [], {"feeder"}),
        ("POST", "/v1/queries/validate", {}, {"client", "feeder"}),
        ("GET", "/v1/queries/none/results", None, {"client"}),
        ("PUT", "/v1/classes/default", {"name": "default"}, set()),
        ("PUT", "/v1/scheduler", {"policy": "rr"}, set()),
        ("DELETE", "/v1/streams/none", None, set()),
        ("GET", "/metrics", None, {"client", "feeder"}),
        ("GET", "/v1/info", None, {"client", "feeder"}),
    ],
)
def test_roles_allow_what_they_are_for(
    guarded: RunningServer, method: str, path: str, body: Any, allowed: set[str]
) -> None:
    for role, token in ROLES.items():
        answer = guarded.http.request(method, path, json=body, headers={"authorization": f"Bearer {token}"})
        if role == "admin" or role in allowed:
            assert answer.status_code not in (401, 403), (role, answer.text)
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            assert "role" in answer.json()["detail"]
    for wrong in ({"authorization": "Bearer nothing"}, {"authorization": "Basic x"}, {"authorization": ""}):
        answer = guarded.http.request(method, path, json=body, headers=wrong)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authorised")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_websockets_take_the_token_from_header_or_address(guarded: RunningServer) -> None:
    nobody: dict[str, Any] = {"additional_headers": {}}
    with guarded.websocket("/v1/feed?token=writer-secret", **nobody) as socket:
        socket.send(json.dumps({"type": "hello", "producer": "p"}))
        assert json.loads(socket.recv(timeout=PATIENCE))["type"] == "welcome"
    with guarded.websocket("/v1/feed", **nobody) as socket:
        assert closed_with(socket)[0] == 4401
    with guarded.websocket("/v1/feed?token=guess-secret", **nobody) as socket:
        assert closed_with(socket)[0] == 4401
    with guarded.websocket("/v1/feed?token=reader-secret", **nobody) as socket:
        code, reason = closed_with(socket)
        assert (code, "feeder or admin" in reason) == (4403, True)
    with guarded.websocket("/v1/queries/none/results?token=writer-secret", **nobody) as socket:
        assert closed_with(socket)[0] == 4403


def test_health_needs_no_token_and_no_token_is_logged(guarded: RunningServer) -> None:
    bare = httpx.get(f"{guarded.url}/readyz", timeout=PATIENCE)
    assert bare.status_code == 200
    assert httpx.get(f"{guarded.url}/livez", timeout=PATIENCE).status_code == 200
    with guarded.websocket("/v1/feed?token=guess-secret", additional_headers={}) as socket:
        closed_with(socket)
    assert not [line for line in guarded.log if "secret" in line]
