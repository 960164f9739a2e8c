"""A real server process over real sockets: rows in, answers out, and its metrics."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from tests.support.servers.readings import (
    READINGS,
    SCHEMA,
    batch,
    columns,
    create,
    plan,
    pull,
    register,
    row,
    rows,
)
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    closed_with,
    eventually,
    running_server,
)

from mavstream_protocol.tuples import encode_lines, encode_stream


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def server(running: RunningServer) -> Iterator[RunningServer]:
    """A server without streams and queries."""
    yield running
    running.clear()


def test_rows_fed_in_every_encoding_are_answered_unchanged(server: RunningServer) -> None:
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
        received: list[dict[str, Any]] = []
        while len(received) < 70:
            message = json.loads(subscriber.recv(timeout=PATIENCE))
            assert (message["type"], message["offset"]) == ("rows", len(received))
            received += message["rows"]
    assert received == rows(0, 70)
    assert pull(server, query, 70) == received
    info = server.http.get("/v1/streams/readings").json()
    assert (info["position"], info["producers"]) == (70, {"p": 3})


def test_a_complete_stream_finishes_its_queries(server: RunningServer) -> None:
    create(server)
    query = register(server)
    server.http.post("/v1/streams/readings/tuples", json=rows(0, 5))
    assert server.http.post("/v1/streams/readings/complete", json={}).status_code == 200
    with server.websocket(f"/v1/queries/{query}/results") as subscriber:
        assert closed_with(subscriber)[0] == 1000
    assert server.http.get(f"/v1/queries/{query}").json()["state"] == "finished"
    answer = server.http.post("/v1/streams/readings/tuples", json=rows(5, 6))
    assert (answer.status_code, answer.json()["code"]) == (409, "stream_complete")


def test_arrival_time_windows_close_without_further_rows(server: RunningServer) -> None:
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
    index = iter(range(10**6))

    def answered() -> list[dict[str, Any]]:
        n = next(index)
        server.http.post("/v1/streams/readings/tuples", json=[row(n)])
        found: list[dict[str, Any]] = server.http.get(f"/v1/queries/{query}/results").json()["rows"]
        return found

    assert eventually(answered, "a window to close")[0]["n"] >= 1


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


def test_a_server_with_sync_delivery_acks_frames(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", "--delivery", "sync") as server:
        create(server)
        with RawProducer(server, "p", "readings") as producer:
            assert producer.welcome["delivery"] == "sync"
            for sequence in range(1, 6):
                producer.rows("readings", sequence, rows(sequence * 10 - 10, sequence * 10))
            producer.acked("readings", 5)
        assert server.http.post("/v1/streams/readings/tuples", json=rows(50, 51)).json()["position"] == 50


def test_creation_with_a_key_happens_once(server: RunningServer) -> None:
    key = {"idempotency-key": "k1"}
    answers = [server.http.post("/v1/streams", json=READINGS, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    other = server.http.post("/v1/streams", json={**READINGS, "name": "others"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    plain = server.http.post("/v1/streams", json=READINGS)
    assert (plain.status_code, plain.json()["code"]) == (409, "stream_exists")


def test_a_resource_and_its_idempotency_key_are_stored_atomically(server: RunningServer) -> None:
    def post(path: str, body: dict[str, Any]) -> httpx.Response:
        return httpx.post(server.url + path, json=body, headers={"idempotency-key": "k2"}, timeout=PATIENCE)

    query = {"name": "all", "plan": plan()}
    with closing(sqlite3.connect(server.data / "catalog.sqlite")) as catalog:
        # From now on no key can be stored, as if the server crashed at that point.
        catalog.execute("CREATE TRIGGER stop BEFORE INSERT ON answers BEGIN SELECT RAISE(ABORT, 'stop'); END")
        assert post("/v1/streams", READINGS).status_code == 500
        assert server.http.get("/v1/streams").json()["items"] == []
        assert not (server.data / "streams" / "readings").exists()
        create(server)
        assert post("/v1/queries", query).status_code == 500
        assert server.http.get("/v1/queries").json()["items"] == []
        catalog.execute("DROP TRIGGER stop")
    answers = [post("/v1/queries", query) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    again = {**READINGS, "name": "others"}
    assert [post("/v1/streams", again).status_code for _ in range(2)] == [201, 201]


def test_a_name_works_wherever_an_id_does(server: RunningServer) -> None:
    create(server)
    id_ = register(server, name="mine")
    for rest in ("", "/plan", "/qos", "/results"):
        by_id, by_name = (server.http.get(f"/v1/queries/{ref}{rest}") for ref in (id_, "mine"))
        assert (by_name.status_code, by_name.json().keys()) == (200, by_id.json().keys())
    assert server.http.get("/v1/queries/mine").json()["id"] == id_
    assert server.http.get("/v1/optimizer/decisions", params={"query": "mine"}).status_code == 200
    with server.websocket("/v1/queries/mine/results") as subscriber:
        assert json.loads(subscriber.recv(timeout=PATIENCE))["type"] == "opened"
    assert server.http.patch("/v1/queries/mine", json={"state": "paused"}).json()["id"] == id_
    for path in ("/v1/streams", "/v1/queries"):
        body = {**READINGS, "name": "mine"} if path == "/v1/streams" else {"name": "readings", "plan": plan()}
        assert server.http.post(path, json=body).json()["code"] == "name_taken"
    rows_ = {"content": b"a\n1\n", "headers": {"content-type": "text/csv"}}
    refused = server.http.put("/v1/tables/mine", **rows_).json()
    assert refused["detail"].startswith(f"table 'mine' cannot have this name, which query '{id_}' has")
    assert server.http.delete("/v1/queries/mine").status_code == 204
    assert server.http.put("/v1/tables/mine", **rows_).status_code == 201
    assert server.http.post("/v1/queries", json={"name": "mine", "plan": plan()}).status_code == 409
    server.http.delete("/v1/tables/mine")


def test_lists_are_paged(server: RunningServer) -> None:
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


def test_streams_can_be_removed_when_no_query_reads_them(server: RunningServer) -> None:
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


def test_shared_memory_is_reported_in_full_per_member_and_once_in_totals(server: RunningServer) -> None:
    fields = [{"name": "at", "type": "timestamp"}, {"name": "n", "type": "int"}]
    create(server, fields=fields, event_time="at")
    count = {"op": "aggregate", "input": "in", "by": ["n"], "compute": {"c": "count(*)"}}
    first, second = (
        register(
            server,
            name=f"q{limit}",
            plan={
                "root": "out",
                "nodes": {
                    "in": {"op": "source", "stream": "readings"},
                    "counts": {**count, "window": {"kind": "tumbling", "size": "1h"}},
                    "out": {"op": "select", "input": "counts", "where": f"c > {limit}"},
                },
            },
            qos={"memory": {"at_most": "100B"}},
        )
        for limit in range(2)
    )
    rows_of_a_second = [{"at": 1000 * n, "n": n} for n in range(50)]
    assert server.http.post("/v1/streams/readings/tuples", json=rows_of_a_second).status_code == 200

    def shared() -> dict[str, int] | None:
        operators = server.http.get(f"/v1/queries/{first}/plan").json()["operators"]
        memory = server.http.get(f"/v1/queries/{first}").json()["memory_bytes"]
        return memory if operators[0]["sharers"] == 2 and memory["state"] and not memory["backlog"] else None

    memory = eventually(shared, "the two to share")
    assert server.http.get(f"/v1/queries/{second}").json()["memory_bytes"] == memory
    held = sum(memory.values())
    for id_ in (first, second):
        eventually(lambda id_=id_: measured_memory(server, id_) == held, "what the target is judged by")
        assert server.http.get(f"/v1/queries/{id_}/qos").json()["memory_bytes"] == memory
    stats = server.http.get("/v1/stats").json()
    assert stats["engine"]["memory_bytes"] == stats["classes"]["default"]["memory_bytes"] == memory
    text = server.http.get("/metrics").text
    assert f'mavstream_class_state_bytes{{class="default"}} {float(memory["state"])}' in text
    assert f'mavstream_state_bytes{{class="default",query="{first}"}} {float(memory["state"])}' in text


def measured_memory(server: RunningServer, id_: str) -> float | None:
    (target,) = server.http.get(f"/v1/queries/{id_}/qos").json()["targets"]
    measured: float | None = target["measured"]
    return measured


def test_metrics_name_query_class_and_operator(server: RunningServer) -> None:
    create(server, name="counted")  # counters of a name continue when its stream is created again
    query = register(server, plan=plan(stream="counted"))
    server.http.post("/v1/streams/counted/tuples", json=rows(0, 7))
    pull(server, query, 7)
    read = 'mavstream_class_backlog_bytes{class="default"} 0.0'

    def when_all_is_read() -> str | None:
        found = server.http.get("/metrics").text
        return found if read in found else None

    text = eventually(when_all_is_read, "all is read")
    for line in (
        'mavstream_tuples_in_total{stream="counted"} 7.0',
        'mavstream_tuples_acked_total{stream="counted"} 7.0',
        f'mavstream_results_total{{class="default",query="{query}"}} 7.0',
        f'mavstream_latency_seconds_count{{class="default",query="{query}"}} 7.0',
        'mavstream_class_latency_seconds_bucket{class="default",le="+Inf"} 7.0',
        f'mavstream_operator_queued_rows{{class="default",operator="out",query="{query}"}} 0.0',
        'mavstream_queries{state="running"} 1.0',
        'mavstream_class_starved{class="default"} 0.0',
        "mavstream_engine_up 1.0",
        "mavstream_engine_restarts_total 0.0",
    ):
        assert line in text, line


def test_rows_that_a_query_missed_are_reported(server: RunningServer) -> None:
    """Fed again, rows belong to windows that began before the query."""
    create(server, name="fed_twice")
    again = rows(0, 5)
    server.http.post("/v1/streams/fed_twice/tuples", json=again).raise_for_status()
    nodes = {
        "in": {"op": "source", "stream": "fed_twice"},
        "n": {
            "op": "aggregate",
            "input": "in",
            "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)"},
        },
    }
    query = register(server, plan={"root": "n", "nodes": nodes})
    server.http.post("/v1/streams/fed_twice/tuples", json=again).raise_for_status()

    def counted() -> dict[str, Any] | None:
        info: dict[str, Any] = server.http.get(f"/v1/queries/{query}").json()
        return info if info["missed"] == 5 else None

    info = eventually(counted, "the rows to be counted")
    assert (info["results"], info["late"], info["counters"]) == (0, 0, {"n": {"missed": 5}})
    (operator,) = [
        one for one in server.http.get(f"/v1/queries/{query}/plan").json()["operators"] if one["name"] == "n"
    ]
    assert operator["counters"] == {"missed": 5}
    labels = f'class="default",operator="n",query="{query}",reason="missed"'
    assert f"mavstream_rows_left_out_total{{{labels}}} 5.0" in server.http.get("/metrics").text
