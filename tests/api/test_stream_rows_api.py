"""Rows of streams over a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.servers.readings import SCHEMA, create, plan, rows
from tests.support.servers.running_server import RunningServer, running_server

from mavstream_protocol.tuples import decode_stream, rows_of

ARROW = "application/vnd.apache.arrow.stream"
PATH = "/v1/streams/readings/tuples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        create(running)
        assert running.http.post(PATH, json=rows(0, 10)).status_code == 200
        yield running


def test_rows_are_read_as_json_and_as_arrow(server: RunningServer) -> None:
    found = server.http.get(PATH, params={"after": 2, "limit": 3}).json()
    assert (found["rows"], found["next"], found["end"]) == (rows(3, 6), 5, 10)
    arrow = server.http.get(PATH, params={"after": 2, "limit": 3}, headers={"Accept": ARROW})
    assert arrow.headers["content-type"] == ARROW
    assert rows_of(decode_stream(SCHEMA, arrow.content)) == rows(3, 6)
    assert (arrow.headers["mavstream-next"], arrow.headers["mavstream-end"]) == ("5", "10")
    assert arrow.headers["mavstream-complete"] == "false"
    assert "mavstream-gap" not in arrow.headers


@pytest.mark.parametrize(
    ("path", "accept", "status", "code"),
    [
        (f"{PATH}?after=10", "*/*", 422, "position_ahead"),
        (f"{PATH}?after=-2", "*/*", 422, "invalid_request"),
        (f"{PATH}?limit=100001", "*/*", 422, "invalid_request"),
        (f"{PATH}?after={(1 << 63) - 1}", "*/*", 422, "invalid_request"),
        (PATH, "text/html", 406, "not_acceptable"),
        ("/v1/streams/nobody/tuples", "*/*", 404, "unknown_stream"),
    ],
)
def test_requests_that_cannot_be_answered(
    server: RunningServer, path: str, accept: str, status: int, code: str
) -> None:
    answer = server.http.get(path, headers={"Accept": accept})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_derived_stream_names_its_query(server: RunningServer) -> None:
    made = server.http.post("/v1/queries", json={"name": "even", "plan": plan("open"), "derive": True})
    assert made.status_code == 201, made.text
    answer = server.http.get("/v1/streams/even/tuples")
    assert (answer.status_code, answer.json()["code"]) == (409, "derived_stream")
    assert "/results" in answer.json()["detail"]
