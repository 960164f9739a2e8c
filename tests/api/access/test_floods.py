"""Floods: what a client sends without end is refused, what it does not send or read is timed out."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.servers.raw_http import answer_of, connected, exchange, is_closed, upgraded
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    closed_with,
    eventually,
    running_server,
)
from tests.support.servers.sensors import SENSORS, STREAM, TUPLES, problem
from websockets.exceptions import InvalidStatus

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST " + TUPLES.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PIECE = b"x" * (256 << 10)
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    times = ("--header-timeout", "300ms", "--body-timeout", "300ms", "--hello-timeout", "300ms")
    bounds = ("--send-timeout", "300ms", "--max-pending-feeds", "3")
    with running_server(tmp_path_factory.mktemp("data"), *times, *bounds) as running:
        assert running.http.post(STREAM, json=SENSORS).status_code == 201
        yield running
        assert not [event for event in running.events() if event["level"] == "error"]


def resident(server: RunningServer) -> int:
    """Return the memory of the API process, in bytes."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def pour(connection: socket.socket, piece: bytes, limit: int) -> int:
    """Send a piece again and again until the server closes the connection; returns the bytes sent."""
    sent = 0
    try:
        while sent < limit:
            connection.sendall(piece)
            sent += len(piece)
    except TimeoutError:
        raise
    except OSError:
        pass
    return sent


def test_headers_without_end_are_cut_off(server: RunningServer) -> None:
    before = resident(server)
    with ExitStack() as stack:
        for _ in range(4):
            connection = stack.enter_context(connected(server))
            connection.sendall(GET + b"X: ")
            assert pour(connection, PIECE, 64 * MIB) < 64 * MIB
        assert resident(server) - before < 16 * MIB


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (GET + b"X: " + b"x" * (130 << 10), 431, "headers_too_large"),
        (GET + b"X: y\r\n" * 300 + b"\r\n", 431, "headers_too_large"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "url_too_long"),
        (GET, 408, "headers_too_slow"),
        (b"\r\n\r\n", 408, "headers_too_slow"),
        (b"nonsense\r\n\r\n", 400, "invalid_http"),
        (POST + b"Content-Length: 100\r\n\r\n[", 408, "body_too_slow"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n", 408, "body_too_slow"),
    ],
)
def test_each_limit_has_its_own_problem(
    server: RunningServer, request_: bytes, status: int, code: str
) -> None:
    answered, body = exchange(server, request_)
    assert (answered, body["code"], body["status"]) == (status, code, status)
    assert ":" in body["detail"], "it says what to do"


def test_headers_up_to_the_limit_are_read(server: RunningServer) -> None:
    assert exchange(server, GET + b"X: " + b"x" * (126 << 10) + b"\r\n\r\n")[0] == 200
    # Twice the limit behind complete headers is a body, not headers.
    body = b"[" + b" " * (256 << 10) + b"]"
    assert exchange(server, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)[0] == 200


def test_trailers_without_end_are_cut_off(server: RunningServer) -> None:
    with connected(server) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\nX: ")
        assert pour(connection, PIECE, 64 * MIB) < 64 * MIB


def test_a_body_that_trickles_is_timed_out(server: RunningServer) -> None:
    with connected(server) as connection:
        connection.sendall(POST + b"Content-Length: 1000000\r\n\r\n[")
        connection.settimeout(0.05)
        while True:
            try:
                connection.sendall(b" ")
                if connection.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                continue
        connection.settimeout(PATIENCE)
        status, body = answer_of(connection)
    assert (status, body["code"]) == (408, "body_too_slow")


def test_a_connection_that_sends_nothing_is_closed(server: RunningServer) -> None:
    with connected(server) as connection:
        assert is_closed(connection)


def test_requests_sent_far_ahead_of_their_answers_are_cut_off(server: RunningServer) -> None:
    with connected(server) as connection:
        pour(connection, (GET + b"\r\n") * 1000, 1 * MIB)
        assert is_closed(connection)
    assert server.http.get("/livez").status_code == 200


def test_a_client_that_does_not_read_its_answers_is_dropped(server: RunningServer) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(server) as connection:
        assert pour(connection, request * 8, 64 * MIB) < 64 * MIB


def test_pongs_that_nobody_reads_do_not_pile_up(server: RunningServer) -> None:
    before = resident(server)
    with upgraded(server) as connection:
        ping = b"\x89\xfd" + bytes(4) + bytes(125)
        assert pour(connection, ping * 2000, 256 * MIB) < 256 * MIB, "it was not dropped"
        assert resident(server) - before < 16 * MIB


def test_a_message_of_countless_empty_fragments_is_refused(server: RunningServer) -> None:
    with RawProducer(server, "splitter") as producer:
        producer.socket.socket.sendall(b"\x02\x80" + bytes(4) + (b"\x00\x80" + bytes(4)) * 5000)
        assert closed_with(producer.socket)[0] == 1009


def test_a_websocket_with_a_long_address_is_refused(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        server.websocket("/v1/feed?x=" + "y" * 10_000)
    body = json.loads(refused.value.response.body)
    assert (refused.value.response.status_code, body["code"]) == (400, "invalid_handshake")


def test_a_producer_that_says_nothing_is_disconnected(server: RunningServer) -> None:
    with server.websocket("/v1/feed") as silent:
        assert closed_with(silent) == (4408, "got no hello within 0.3 s: send it first")
    with RawProducer(server, "patient") as producer, server.websocket("/v1/feed") as silent:
        closed_with(silent)
        producer.rows("sensors", 1, [{"n": 1, "x": 1}])
        producer.acked("sensors", 1)


def test_few_producers_may_wait_with_their_hello(tmp_path: Path) -> None:
    with running_server(tmp_path, "--max-pending-feeds", "2") as server, ExitStack() as stack:
        silent = [stack.enter_context(server.websocket("/v1/feed")) for _ in range(2)]
        with server.websocket("/v1/feed") as third:
            assert closed_with(third)[0] == 4429
        silent[0].send(json.dumps({"type": "hello", "producer": "p"}))
        silent[0].recv(timeout=PATIENCE)
        stack.enter_context(RawProducer(server, "q"))


def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    limits = ("--max-connections", "4", "--reserved-connections", "2")
    with running_server(tmp_path, *limits) as server, ExitStack() as stack:
        for _ in range(140):
            stack.enter_context(connected(server))
        assert exchange(server, GET + b"\r\n")[0] == 200
        assert exchange(server, GET.replace(b"/livez", b"/v1/streams") + b"\r\n")[0] == 200


def test_health_checks_and_administrators_have_room_on_a_full_server(tmp_path: Path) -> None:
    limits = ("--max-connections", "3", "--reserved-connections", "1")
    tokens = {"MAVSTREAM_TOKENS": "admin:root-secret,client:reader-secret,feeder:writer-secret"}
    with running_server(tmp_path, *limits, token="root-secret", env=tokens) as server, ExitStack() as stack:
        writer = {"additional_headers": {"Authorization": "Bearer writer-secret"}}
        for name in ("a", "b", "c"):
            stack.enter_context(RawProducer(server, name, **writer))
        reader = {"authorization": "Bearer reader-secret"}
        assert problem(server.http.get(STREAM, headers=reader)) == (503, "too_many_connections")
        with server.websocket("/v1/feed", **writer) as fourth:
            assert closed_with(fourth)[0] == 4429
        assert server.http.get("/livez", headers={"authorization": ""}).status_code == 200
        assert server.http.get("/readyz", headers={"authorization": ""}).status_code == 200
        assert server.http.get(STREAM).status_code == 200
        stack.enter_context(RawProducer(server, "d"))  # an administrator's, in the reserve
        eventually(lambda: server.http.get(STREAM).status_code == 503, "the reserve to be used up")
        assert server.http.get("/livez").status_code == 200
