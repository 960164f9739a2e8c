"""Streams get fields and other limits over HTTP, while a server runs and when it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from tests.support.servers.readings import batch, columns, create, plan, register, rows
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    eventually,
    running_server,
)

from mavstream import Client, Conflict, Invalid
from mavstream_server.checking.data import check_data

PATH = "/v1/streams/readings"
WET = {"name": "wet", "type": "bool", "nullable": True}
ROOM = {"name": "room", "type": "string", "nullable": True}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture
def server(running: RunningServer) -> RunningServer:
    running.clear()
    create(running)
    return running


def change(
    server: RunningServer, body: dict[str, Any], status: int = 200, path: str = PATH
) -> dict[str, Any]:
    answer = server.http.patch(path, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_queries_over_old_and_new_rows_answer_as_duckdb_does(server: RunningServer) -> None:
    register(server, name="old")
    assert server.http.post(f"{PATH}/tuples", json=rows(0, 20)).status_code == 200
    changed = change(server, {"add_fields": [WET, ROOM]})
    assert changed["changed"] == ["fields/wet", "fields/room"]
    assert changed["spec"]["fields"][-2:] == [WET, ROOM]
    more = [{**one, "wet": one["n"] % 2 == 0, "room": f"r{one['n'] % 3}"} for one in rows(20, 40)]
    assert server.http.post(f"{PATH}/tuples", json=more).status_code == 200
    assert server.http.post(f"{PATH}/tuples", json=rows(40, 50)).status_code == 200
    sql = "SELECT n, temperature, room FROM readings WHERE wet IS NOT TRUE AND n > 10"
    new = server.http.post("/v1/queries", json={"name": "new", "from": "earliest", "sql": sql}).json()["id"]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE readings (n BIGINT, temperature DOUBLE, wet BOOLEAN, room TEXT)")
    every = [*rows(0, 20), *more, *rows(40, 50)]
    connection.executemany(
        "INSERT INTO readings VALUES (?, ?, ?, ?)",
        [(one["n"], one["temperature"], one.get("wet"), one.get("room")) for one in every],
    )
    expected = connection.execute(sql + " ORDER BY n").fetchall()

    def answers(query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.http.get(f"/v1/queries/{query}/results").json()["rows"]
        return found

    eventually(lambda: len(answers(new)) == len(expected), "answers over old and new rows")
    assert [(one["n"], one["temperature"], one["room"]) for one in answers(new)] == expected
    eventually(lambda: len(answers("old")) == 50, "answers of the query that was there")
    assert {"wet", "room"}.isdisjoint(answers("old")[-1])
    tried = server.http.post("/v1/queries/try", json={"sql": sql.replace("WHERE", "WHERE n < 49 AND")}).json()
    assert [one["n"] for one in tried["rows"]] == [n for n, _, _ in expected if n < 49]
    stored = server.http.get(f"{PATH}/tuples", params={"after": 17, "limit": 4}).json()["rows"]
    assert [(one["n"], one["wet"], one["room"]) for one in stored] == [
        (18, None, None),
        (19, None, None),
        (20, True, "r2"),
        (21, False, "r0"),
    ]


def test_connected_producers_go_on_in_every_format(server: RunningServer) -> None:
    with RawProducer(server, "p", "readings") as producer:
        producer.arrow("readings", 1, batch(0, 10))
        assert producer.acked("readings", 1)
        change(server, {"add_fields": [WET]})
        producer.arrow("readings", 2, batch(10, 20))
        producer.rows("readings", 3, rows(20, 30))
        producer.columns("readings", 4, columns(30, 40))
        producer.rows("readings", 5, [{**one, "wet": True} for one in rows(40, 50)])
        assert producer.acked("readings", 5)
    stored = server.http.get(f"{PATH}/tuples").json()["rows"]
    assert [one["wet"] for one in stored] == [None] * 40 + [True] * 10
    assert [{name: one[name] for name in one if name != "wet"} for one in stored] == rows(0, 50)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"add_fields": [{"name": "wet", "type": "bool"}]}, 422, "field_not_null"),
        ({"add_fields": [{**WET, "name": "window_end"}]}, 422, "reserved_name"),
        ({"add_fields": [WET, {**WET, "name": "Wet"}]}, 422, "duplicate_name"),
        ({"add_fields": [{**WET, "name": "n"}]}, 409, "field_exists"),
        ({"lateness": "2s"}, 422, "fixed_setting"),
        ({"event_time": "n"}, 422, "fixed_setting"),
        ({"max_ahead": "1h"}, 422, "needs_event_time"),
        ({"colour": "red"}, 422, "unknown_key"),
    ],
)
def test_changes_that_are_refused(
    server: RunningServer, body: dict[str, Any], status: int, code: str
) -> None:
    problem = change(server, body, status)
    assert code in (problem["code"], *(item["code"] for item in problem.get("errors", ())))
    assert server.http.get(PATH).json()["spec"]["fields"] == change(server, {})["spec"]["fields"]


def test_a_fixed_setting_is_named_with_the_reason(server: RunningServer) -> None:
    detail = change(server, {"lateness": "2s"}, 422)["detail"]
    assert "'lateness' of a stream cannot be changed: the watermarks of rows that are stored" in detail


def test_a_derived_stream_is_refused(server: RunningServer) -> None:
    made = server.http.post("/v1/queries", json={"name": "even", "plan": plan("open"), "derive": True})
    assert made.status_code == 201, made.text
    problem = change(server, {"add_fields": [WET]}, 409, "/v1/streams/even")
    assert problem["code"] == "derived_stream"


def test_the_sdk_changes_streams(server: RunningServer) -> None:
    with Client(server.url) as client:
        client.append("readings", rows(0, 2))
        info = client.update_stream("readings", add_fields=[WET], retention="2h")
        assert info.changed == ("fields/wet", "retention")
        assert client.update_stream("readings", add_fields=[WET]).changed == ()
        assert client.update_stream("readings", retention=None).spec.retention is None
        client.append("readings", [{**rows(2, 3)[0], "wet": True}])
        assert [one["wet"] for one in client.rows("readings").rows] == [None, None, True]
        with pytest.raises(Conflict, match="has a field 'wet'"):
            client.update_stream("readings", add_fields=[{**WET, "type": "int"}])
        with pytest.raises(Invalid, match="'event_time' of a stream cannot be changed"):
            client.update_stream("readings", event_time="n")


def test_a_feed_that_is_open_sends_a_field_that_was_added(server: RunningServer) -> None:
    with Client(server.url) as client:
        with client.feed("p", ["readings"]) as feed:
            feed.send("readings", rows(0, 2))
            feed.flush()
            client.update_stream("readings", add_fields=[WET])
            feed.send("readings", rows(2, 4))
            feed.send("readings", [{**one, "wet": True} for one in rows(4, 6)])
        assert [one["wet"] for one in client.rows("readings").rows] == [None] * 4 + [True] * 2


@pytest.mark.parametrize("point", ["log.describe.before", "log.describe.after"])
def test_a_server_that_is_killed_in_between_completes_the_change(tmp_path: Path, point: str) -> None:
    with running_server(tmp_path / "data") as server:
        create(server)
        register(server, name="old")
        assert server.http.post(f"{PATH}/tuples", json=rows(0, 5)).status_code == 200
        eventually(lambda: len(results(server)) == 5, "answers before")
        server.kill()
    # Before it describes the field the catalog has it, after it no segment does.
    with running_server(tmp_path / "data", env={"MAVSTREAM_FAILPOINTS": f"api:{point}=kill"}) as server:
        with pytest.raises(httpx.TransportError):
            server.http.patch(PATH, json={"add_fields": [WET]})
        server.process.wait(PATIENCE)
    with running_server(tmp_path / "data") as server:
        assert server.http.get(PATH).json()["spec"]["fields"][-1] == WET
        assert change(server, {"add_fields": [WET]})["changed"] == []
        assert server.http.post(f"{PATH}/tuples", json=[{**rows(5, 6)[0], "wet": True}]).status_code == 200
        eventually(lambda: len(results(server)) == 6, "the answer after the restart")
        assert [one["n"] for one in results(server)] == list(range(6))
        assert "wet" not in results(server)[-1]
        stored = server.http.get(f"{PATH}/tuples").json()["rows"]
        assert [one["wet"] for one in stored] == [None] * 5 + [True]
    assert check_data(tmp_path / "data").found == []


def results(server: RunningServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.http.get("/v1/queries/old/results").json()["rows"]
    return found
