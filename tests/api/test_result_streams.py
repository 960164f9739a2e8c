"""Results over plain HTTP as they are answered: server-sent events, JSON lines, CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.servers.hot_readings import Feed, answered
from tests.support.servers.running_server import RunningServer, eventually, running_server

pytest_plugins = ("tests.support.servers.hot_fixtures",)

EVENTS, LINES, CSV = "text/event-stream", "application/x-ndjson", "text/csv"


@contextmanager
def opened(
    server: RunningServer, query: str, kind: str, parameters: str = "", **headers: str
) -> Iterator[httpx.Response]:
    path = f"/v1/queries/{query}/results{parameters}"
    with server.http.stream("GET", path, headers={"accept": kind, **headers}) as response:
        yield response


def next_event(lines: Iterator[str]) -> dict[str, str]:
    """Return the fields of the next event."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            return fields
    return fields


def test_events_are_pushed_as_rows_are_answered(server: RunningServer, feed: Feed, query: str) -> None:
    with opened(server, query, EVENTS) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = response.iter_lines()
        first = next_event(lines)
        assert (first["event"], json.loads(first["data"])["next"]) == ("opened", 0)
        feed.temps(25, 26)
        for offset, temp in ((0, 25), (1, 26)):
            event = next_event(lines)
            assert (event["id"], json.loads(event["data"])["temp"]) == (str(offset), temp)
        feed.temps(27)
        assert json.loads(next_event(lines)["data"])["temp"] == 27
    # A browser that connects again names the last event that it got.
    with opened(server, query, EVENTS, **{"last-event-id": "1"}) as response:
        lines = response.iter_lines()
        next_event(lines)
        assert next_event(lines)["id"] == "2"


@pytest.mark.parametrize("kind", [LINES, CSV])
def test_lines_are_pushed_and_end_with_the_query(
    server: RunningServer, feed: Feed, query: str, kind: str
) -> None:
    with opened(server, query, kind) as response:
        lines = response.iter_lines()
        if kind == CSV:
            columns = next(lines).split(",")
            assert "temp" in columns
        feed.temps(25)
        line = next(lines)
        row = json.loads(line) if kind == LINES else dict(zip(columns, line.split(","), strict=True))
        assert float(row["temp"]) == 25
        feed.temps(26)
        assert "26" in next(lines)
        assert server.http.patch(f"/v1/queries/{query}", json={"state": "stopped"}).status_code == 200
        assert list(lines) == []


def test_what_there_is_can_be_read_without_waiting(server: RunningServer, feed: Feed, query: str) -> None:
    feed.temps(*range(30, 60))
    answered(server, query, 30)
    with opened(server, query, LINES, "?follow=false&after=9") as response:
        assert [json.loads(line)["temp"] for line in response.iter_lines()] == list(range(40, 60))
    with opened(server, query, LINES, "?follow=false&latest=true") as response:
        assert list(response.iter_lines()) == []


@pytest.mark.parametrize("kind", [EVENTS, LINES, CSV])
def test_what_an_ended_query_has_is_read_to_its_end(
    server: RunningServer, feed: Feed, query: str, kind: str
) -> None:
    feed.temps(31, 32)
    answered(server, query, 2)
    assert server.http.patch(f"/v1/queries/{query}", json={"state": "stopped"}).status_code == 200
    with opened(server, query, kind, "?follow=false&after=-1") as response:
        assert "32" in response.read().decode()


def test_refusals_are_problems(server: RunningServer, query: str) -> None:
    for path, status in ((f"{query}/results?after=7", 422), ("nobody/results", 404)):
        found = server.http.get(f"/v1/queries/{path}", headers={"accept": EVENTS})
        assert found.status_code == status
        assert found.headers["content-type"].startswith("application/problem+json")


def test_a_client_that_leaves_is_no_subscriber_any_more(
    server: RunningServer, feed: Feed, query: str
) -> None:
    def subscribers() -> int:
        return int(server.http.get("/v1/stats").json()["subscribers"])

    eventually(lambda: subscribers() == 0, "the streams of other tests to end")
    with opened(server, query, EVENTS) as response:
        lines = response.iter_lines()
        next_event(lines)
        assert subscribers() == 1
    eventually(lambda: subscribers() == 0, "the subscription to end")


def test_roles_and_limits_are_those_of_the_websocket(tmp_path: Path) -> None:
    env = {"MAVSTREAM_TOKENS": "admin:boss,client:reader,feeder:sensor"}
    with running_server(tmp_path, "--max-subscribers", "1", env=env) as server:
        server.http.headers["authorization"] = "Bearer boss"
        fields = [{"name": "v", "type": "int"}]
        assert server.http.post("/v1/streams", json={"name": "s", "fields": fields}).status_code == 201
        plan = {"root": "in", "nodes": {"in": {"op": "source", "stream": "s"}}}
        query = server.http.post("/v1/queries", json={"name": "all", "plan": plan}).json()["id"]
        path = f"/v1/queries/{query}/results"
        refused = server.http.get(path, headers={"accept": EVENTS, "authorization": "Bearer sensor"})
        assert refused.status_code == 403
        with opened(server, query, EVENTS, authorization="Bearer reader") as response:
            lines = response.iter_lines()
            assert next_event(lines)["event"] == "opened"
            assert server.http.get(path, headers={"accept": LINES}).status_code == 429
            # The server does not wait for streams that never end.
            server.process.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert server.process.wait() == 0


def test_gaps_break_lines_off_and_are_events(tmp_path: Path) -> None:
    env = {"MAVSTREAM_CHECKPOINT_INTERVAL": "200ms"}
    with running_server(tmp_path, "--result-bytes", "1MiB", env=env) as server:
        fields = [{"name": "v", "type": "int"}, {"name": "text", "type": "string"}]
        server.http.post("/v1/streams", json={"name": "s", "fields": fields})
        plan = {"root": "in", "nodes": {"in": {"op": "source", "stream": "s"}}}
        query = server.http.post("/v1/queries", json={"name": "all", "plan": plan}).json()["id"]
        for part in range(40):
            rows = [{"v": part * 500 + n, "text": f"{part} {n} " + "x" * 200} for n in range(500)]
            assert server.http.post("/v1/streams/s/tuples", json=rows).status_code == 200
            answered(server, query, (part + 1) * 500)
        eventually(
            lambda: server.http.get(f"/v1/queries/{query}/results?after=-1&limit=1").json()["gap"],
            "retention",
        )
        with opened(server, query, EVENTS, "?after=-1&follow=false") as response:
            lines = response.iter_lines()
            assert next_event(lines)["event"] == "opened"
            gap = next_event(lines)
            assert (gap["event"], json.loads(gap["data"])["start"]) == ("gap", 0)
        with (
            opened(server, query, LINES, "?after=-1&follow=false") as response,
            pytest.raises(httpx.RemoteProtocolError),
        ):
            list(response.iter_lines())
        with opened(server, query, LINES, "?after=-1&follow=false&on_lag=gap") as response:
            rows = [json.loads(line) for line in response.iter_lines()]
            assert rows[0]["v"] > 0
            assert rows[-1]["v"] == 19_999
