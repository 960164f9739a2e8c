"""Classes on a real server: their versions, and how they affect queries and streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.servers.readings import (
    batch,
    create,
    plan,
    register,
)
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    running_server,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def server(running: RunningServer) -> Iterator[RunningServer]:
    """A server without streams and queries."""
    yield running
    running.clear()


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
    assert server.http.get(url).json()["latency"] is None
    server.http.put(url, json={"name": "alarms", "priority": 7, "latency": "20ms"})
    assert server.http.get(url).json()["latency"] == "20ms"
    other = server.http.put(url, json={"name": "other"})
    assert (other.status_code, other.json()["code"]) == (400, "name_mismatch")
    unnamed = server.http.put(url, json={"priority": 8})
    assert (unnamed.status_code, unnamed.json()["name"]) == (200, "alarms")
    assert server.http.get(url).json() == unnamed.json()


def test_a_class_is_deleted_when_no_query_is_left_in_it(server: RunningServer) -> None:
    create(server)
    url = "/v1/classes/nightly"
    server.http.put(url, json={"priority": 4})
    query = register(server, name="report", **{"class": "nightly"})
    refused = server.http.delete(url)
    assert (refused.status_code, refused.json()["code"]) == (409, "class_in_use")
    assert "'report'" in refused.json()["detail"]
    server.http.patch(f"/v1/queries/{query}", json={"state": "stopped"})
    outdated = server.http.delete(url, headers={"if-match": '"7"'})
    assert (outdated.status_code, outdated.json()["code"]) == (412, "wrong_version")
    assert server.http.delete(url).status_code == 204
    assert server.http.delete(url).json()["code"] == "unknown_class"
    assert "nightly" not in server.http.get("/v1/stats").json()["classes"]
    lost = server.http.post("/v1/queries", json={"plan": plan(), "class": "nightly"})
    assert lost.json()["errors"][0]["code"] == "unknown_class"
    always = server.http.delete("/v1/classes/default")
    assert (always.status_code, always.json()["code"]) == (409, "default_class")


def test_a_stream_is_as_important_as_the_highest_class_that_reads_it(server: RunningServer) -> None:
    create(server)
    for name, priority in (("alarms", 6), ("reports", 2)):
        server.http.put(f"/v1/classes/{name}", json={"name": name, "priority": priority})

    def importance() -> int:
        return int(server.http.get("/v1/streams/readings").json()["importance"])

    assert importance() == 0
    query = register(server, **{"class": "reports"})
    assert importance() == 2
    server.http.patch(f"/v1/queries/{query}", json={"class": "alarms"}).raise_for_status()
    assert importance() == 6
    server.http.put("/v1/classes/alarms", json={"name": "alarms", "priority": 8}).raise_for_status()
    assert importance() == 8
    server.http.delete(f"/v1/queries/{query}").raise_for_status()
    assert importance() == 0


def test_producers_and_subscribers_of_low_classes_lose_nothing_beside_a_high_one(
    server: RunningServer,
) -> None:
    priorities = {"high": 6, "middle": 3, "low": 1}
    queries = {}
    for name, priority in priorities.items():
        create(server, name=name)
        server.http.put(f"/v1/classes/{name}", json={"name": name, "priority": priority})
        queries[name] = register(server, plan=plan(stream=name), **{"class": name})
    with ExitStack() as stack:
        producers = {name: stack.enter_context(RawProducer(server, name, name)) for name in priorities}
        sockets = {
            name: stack.enter_context(server.websocket(f"/v1/queries/{query}/results"))
            for name, query in queries.items()
        }
        for sequence in range(1, 101):
            for name, producer in producers.items():
                producer.arrow(name, sequence, batch((sequence - 1) * 50, sequence * 50))
        for name, producer in producers.items():
            producer.acked(name, 100)
        for socket in sockets.values():
            received: list[int] = []
            while len(received) < 5000:
                message = json.loads(socket.recv(timeout=PATIENCE))
                received += [each["n"] for each in message.get("rows", ())]
            assert received == list(range(5000))
