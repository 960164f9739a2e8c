"""Tenants: patterns of streams and classes, and owners of streams, producers and queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE, RawProducer, closed_with, running_server
from tests.support.servers.sensors import SENSORS, STREAM, problem
from tests.support.servers.tenants import Tenants, tenants

FEEDER, CLIENT = ("--role", "feeder"), ("--role", "client")
TOKENS = {
    "alice": (*CLIENT, "--streams", "a_*", "--classes", "default"),
    "bob": CLIENT,
    "roof": (*FEEDER, "--streams", "a_*", "--streams", "shared"),
    "cellar": FEEDER,
}


def spec(name: str) -> dict[str, Any]:
    return {**SENSORS, "name": name}


def query(stream: str, **parts: Any) -> dict[str, Any]:
    return {"plan": {"root": "in", "nodes": {"in": {"op": "source", "stream": stream}}}, **parts}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with tenants(tmp_path_factory.mktemp("site"), TOKENS) as running:
        root = running.server.http
        for name in ("a_one", "b_one", "shared"):
            assert root.post(STREAM, json=spec(name)).status_code == 201
        assert root.put("/v1/classes/alarms", json={"name": "alarms", "priority": 5}).status_code == 200
        yield running


def created(site: Tenants, who: str, name: str) -> None:
    answer = site.ask(who, "POST", STREAM, json=spec(name))
    assert (answer.status_code, answer.json()["owner"]) == (201, who)


def test_patterns_limit_the_streams_of_a_token(site: Tenants) -> None:
    created(site, "alice", "a_two")
    for who, method, path, body in [
        ("alice", "POST", STREAM, spec("b_two")),
        ("alice", "POST", "/v1/queries", query("b_one")),
        ("alice", "GET", "/v1/streams/b_one/tuples", None),
        ("roof", "POST", "/v1/streams/b_one/tuples", [{"n": 1, "x": 1}]),
        ("roof", "POST", STREAM, spec("b_two")),
    ]:
        answer = site.ask(who, method, path, json=body)
        assert problem(answer) == (403, "forbidden"), (who, path)
        assert "'a_*'" in answer.json()["detail"], "it says what is allowed"
    assert site.ask("roof", "POST", "/v1/streams/a_one/tuples", json=[{"n": 1, "x": 1}]).status_code == 200
    assert site.ask("cellar", "POST", "/v1/streams/b_one/tuples", json=[{"n": 1, "x": 1}]).status_code == 200
    assert site.ask("alice", "POST", "/v1/queries", json=query("a_one")).status_code == 201


def test_patterns_limit_the_streams_of_a_feed(site: Tenants) -> None:
    with RawProducer(site.server, "p_roof", "a_one", "b_one", **site.header("roof")) as producer:
        assert list(producer.welcome["streams"]) == ["a_one"]
        for stream in ("a_one", "b_one", "shared"):
            producer.rows(stream, 1, [{"n": 1, "x": 1}])
        producer.send(type="end", stream="b_one")
        answers = [producer.receive() for _ in range(4)]
    assert sorted(each["stream"] for each in answers if each["type"] == "ack") == ["a_one", "shared"]
    refused = [each for each in answers if each["type"] == "reject"]
    assert [(each["stream"], each["problem"]["code"]) for each in refused] == [("b_one", "forbidden")] * 2


def test_patterns_limit_the_classes_of_queries(site: Tenants) -> None:
    refused = site.ask("alice", "POST", "/v1/queries", json=query("a_one", **{"class": "alarms"}))
    assert problem(refused) == (403, "forbidden")
    mine = site.ask("alice", "POST", "/v1/queries", json=query("a_one")).json()["id"]
    moved = site.ask("alice", "PATCH", f"/v1/queries/{mine}", json={"class": "alarms"})
    assert problem(moved) == (403, "forbidden")
    assert (
        site.ask("bob", "POST", "/v1/queries", json=query("a_one", **{"class": "alarms"})).status_code == 201
    )


def test_only_owners_and_administrators_change_a_query(site: Tenants) -> None:
    info = site.ask("bob", "POST", "/v1/queries", json=query("b_one")).json()
    address = f"/v1/queries/{info['id']}"
    assert info["owner"] == "bob"
    for method, body in (("PATCH", {"state": "paused"}), ("DELETE", None)):
        answer = site.ask("alice", method, address, json=body)
        assert problem(answer) == (403, "forbidden")
        assert "belongs to token 'bob'" in answer.json()["detail"]
    named = f"/v1/queries/{info['spec']['name']}"
    assert problem(site.ask("alice", "DELETE", named)) == (403, "forbidden"), "by its name, too"
    assert site.ask("bob", "PATCH", named, json={"state": "paused"}).status_code == 200
    assert site.ask("root", "DELETE", address).status_code == 204


def test_results_are_read_by_owners_and_those_who_may_use_the_streams(site: Tenants) -> None:
    ids = {
        stream: site.ask("bob", "POST", "/v1/queries", json=query(stream)).json()["id"]
        for stream in ("a_one", "b_one")
    }
    for stream, status, code in (("a_one", 200, None), ("b_one", 403, 4403)):
        address = f"/v1/queries/{ids[stream]}/results"
        assert site.ask("alice", "GET", address).status_code == status
        with site.server.websocket(address, **site.header("alice")) as socket:
            if code is None:
                assert json.loads(socket.recv(timeout=PATIENCE))
            else:
                assert closed_with(socket)[0] == code
        assert site.ask("bob", "GET", address).status_code == 200


def test_only_owners_and_administrators_complete_a_stream(site: Tenants) -> None:
    created(site, "cellar", "shared_two")
    created(site, "bob", "c_two")
    for who in ("bob", "roof"):
        assert problem(site.ask(who, "POST", "/v1/streams/shared_two/complete", json={})) == (
            403,
            "forbidden",
        )
    assert site.ask("cellar", "POST", "/v1/streams/shared_two/complete", json={}).status_code == 200
    assert problem(site.ask("cellar", "POST", "/v1/streams/c_two/complete", json={})) == (403, "forbidden")
    assert site.ask("bob", "POST", "/v1/streams/c_two/complete", json={}).status_code == 200


def test_a_producer_name_belongs_to_the_token_that_used_it_first(site: Tenants) -> None:
    with RawProducer(site.server, "meter", **site.header("roof")) as producer:
        # Before its first row, too.
        for first in (True, False):
            with site.server.websocket("/v1/feed", **site.header("cellar")) as thief:
                thief.send(json.dumps({"type": "hello", "producer": "meter"}))
                code, reason = closed_with(thief)
                assert (code, "belongs to token 'roof'" in reason) == (4403, True)
            if first:
                producer.rows("shared", 1, [{"n": 1, "x": 1}])
                producer.acked("shared", 1)
    answer = site.ask(
        "cellar",
        "POST",
        "/v1/streams/shared/tuples",
        json=[{"n": 1, "x": 1}],
        headers={"Producer": "meter", "Sequence": "2"},
    )
    assert problem(answer) == (403, "forbidden")
    assert problem(site.ask("cellar", "DELETE", "/v1/producers/meter")) == (403, "forbidden")
    with RawProducer(site.server, "meter", "shared", **site.header("roof")) as producer:
        assert producer.welcome["streams"]["shared"]["last_sequence"] == 1


def test_nobody_gets_the_answer_to_the_idempotency_key_of_another(site: Tenants) -> None:
    keyed = {"headers": {"Idempotency-Key": "same"}, "json": query("a_one")}
    ids = [site.ask(who, "POST", "/v1/queries", **keyed).json()["id"] for who in ("alice", "bob", "bob")]
    assert ids[0] != ids[1] == ids[2]


def test_owners_survive_a_restart_and_older_objects_belong_to_all(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        server.http.post(STREAM, json=spec("old"))
        old = server.http.post("/v1/queries", json=query("old")).json()["id"]
        with RawProducer(server, "veteran") as producer:
            producer.rows("old", 1, [{"n": 1, "x": 1}])
            producer.acked("old", 1)
    with tenants(tmp_path, TOKENS) as site:
        assert site.ask("bob", "GET", f"/v1/queries/{old}").json()["owner"] is None
        assert site.ask("bob", "PATCH", f"/v1/queries/{old}", json={"state": "paused"}).status_code == 200
        with RawProducer(site.server, "veteran", "old", **site.header("cellar")) as producer:
            assert producer.welcome["streams"]["old"]["last_sequence"] == 1
        new = site.ask("bob", "POST", "/v1/queries", json=query("old")).json()["id"]
        (listed,) = site.ask("bob", "GET", "/v1/producers").json()["items"]
        assert (listed["name"], listed["owner"], listed["sequences"]) == ("veteran", None, {"old": 1})
        site.server.kill()
    with running_server(tmp_path / "data") as server:
        owners = {each["id"]: each["owner"] for each in server.http.get("/v1/queries").json()["items"]}
    assert owners == {old: None, new: "bob"}
