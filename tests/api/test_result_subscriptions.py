"""Subscriptions to results over websockets: reconnects, close codes, subscribers that do not read."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from socket import SHUT_RDWR, SO_RCVBUF, SOL_SOCKET, socket

import httpx
import pytest
from tests.support.servers.hot_readings import SCHEMA, Feed, answered, removed
from tests.support.servers.running_server import RunningServer, closed_with, eventually, running_server
from tests.support.services.query_service import HOT, READINGS
from websockets.sync.client import ClientConnection

from mavstream_protocol.tuples import decode_message, rows_of
from mavstream_protocol.wire.envelope import unseal

pytest_plugins = ("tests.support.servers.hot_fixtures",)

LIMIT = 20.0


def slow_subscriber(server: RunningServer, path: str) -> ClientConnection:
    """Subscribe with small buffers: by default the system may let a socket hold tens of megabytes."""
    address = httpx.URL(server.url)
    connection = socket()
    connection.setsockopt(SOL_SOCKET, SO_RCVBUF, 64 << 10)
    connection.connect((address.host, address.port))
    return server.websocket(path, sock=connection, max_queue=1)


def subscribers(server: RunningServer) -> int:
    return int(server.http.get("/v1/stats").json()["subscribers"])


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
