"""Websockets of hostile peers are closed with a reason, and are no errors of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.support.servers.raw_http import connected, exchange, is_closed
from tests.support.servers.running_server import PATIENCE, RunningServer, closed_with, running_server
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

PINGS = 2000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_errors(server: RunningServer) -> Iterator[None]:
    before = len(server.log)
    yield
    assert server.http.get("/livez").status_code == 200
    assert not [line for line in server.log[before:] if '"level":"error"' in line.replace(" ", "")]


@pytest.mark.parametrize("text", [b"\xff", b'{"type": "hello\xc3"}', b"\xed\xa0\x80"])
def test_a_text_that_is_not_utf_8_closes_the_connection(server: RunningServer, text: bytes) -> None:
    with server.websocket("/v1/feed") as feed:
        feed.socket.sendall(Frame(Opcode.TEXT, text).serialize(mask=True) * 2)
        code, reason = closed_with(feed)
    assert (code, "not UTF-8" in reason) == (1007, True)


def test_characters_that_are_cut_by_fragments_are_joined(server: RunningServer) -> None:
    hello = json.dumps({"type": "hello", "producer": "p", "ü": 1}, ensure_ascii=False).encode()
    cut = hello.index("ü".encode()) + 1
    with server.websocket("/v1/feed") as feed:
        first = Frame(Opcode.TEXT, hello[:cut], fin=False).serialize(mask=True)
        feed.socket.sendall(first + Frame(Opcode.CONT, hello[cut:]).serialize(mask=True))
        code, reason = closed_with(feed)
    assert (code, "ü" in reason) == (4400, True), "the text was read, and its key is not known"


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG])
@pytest.mark.parametrize("size", [0, 125])
def test_a_flood_of_control_frames_closes_the_connection(
    server: RunningServer, opcode: Opcode, size: int
) -> None:
    with server.websocket("/v1/feed") as feed:
        feed.socket.sendall(Frame(opcode, bytes(size)).serialize(mask=True) * PINGS)
        code, reason = closed_with(feed)
    assert (code, "pings or pongs at once" in reason) == (1008, True)


def test_pings_that_come_one_by_one_are_answered(server: RunningServer) -> None:
    with server.websocket("/v1/feed") as feed:
        for _ in range(600):
            assert feed.ping().wait(PATIENCE)


def test_a_refused_handshake_is_no_error_of_the_server(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        server.websocket("/v1/feed", origin="http://evil.example")
    assert refused.value.response.status_code == 403


def test_answers_to_pipelined_requests_of_a_peer_that_has_gone_are_given_up(server: RunningServer) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for count in (2, 10, 18, 100):
        with connected(server) as connection:
            connection.sendall(request * count)
            if count > 16:
                assert is_closed(connection)
    assert exchange(server, request)[0] == 200
