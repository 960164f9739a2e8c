"""Floods: clients that send without end, that send nothing, or that do not read."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from attack.findings import Findings
from attack.fuzz.frames import PING, frame
from attack.options import Options
from attack.target.raw_http import connected, exchange, read_answer
from attack.target.target import Target

STREAM = "flooded"
MIB = 1 << 20
_PIECE = b"x" * (256 << 10)
_MOST = 64 * MIB
"""Bytes that a flood on one connection sends at most."""
_HALF_OPEN = 400
_SILENT = 120
_SLOW = 40


def run(target: Target, options: Options) -> Findings:
    """Run one flood after the other; health must be answered throughout, and each must be cut off."""
    target.server.create("/v1/streams", {"name": STREAM, "fields": [{"name": "n", "type": "int"}]})
    flood = _Flood(target, options.seconds)
    for work in FLOODS:
        work(flood)
    return flood.findings


class _Flood:
    """Connections to the server, and what became of them."""

    def __init__(self, target: Target, seconds: float) -> None:
        self.findings = Findings()
        self.seconds = seconds
        self.server = target.server
        self._host = "Host: " + target.server.url.removeprefix("http://")
        self._token = "Authorization: " + target.server.header("feeder")["Authorization"]

    def head(self, first: str, *headers: str) -> bytes:
        """Return the head of a request without the empty line at its end."""
        return "\r\n".join((first, self._host, self._token, *headers)).encode() + b"\r\n"

    def answered(self, what: str, request: bytes, expected: int) -> None:
        """Send a request that is refused at once, by status or by closing the connection."""
        begin = time.monotonic()
        answer = exchange(self.server, request)
        status = answer.status if answer.complete else 0
        self.findings.answered(what, status, time.monotonic() - begin)
        self.findings.expect(status in (expected, 0), f"{what}: status {status}, not {expected}")

    def cut_off(self, what: str, connection: socket.socket, piece: bytes) -> None:
        """Send a piece again and again; the connection must be closed before `_MOST` bytes."""
        sent = 0
        try:
            while sent < _MOST:
                connection.sendall(piece)
                sent += len(piece)
        except TimeoutError:
            self.findings.violated(f"{what}: the server neither reads nor closes the connection")
        except OSError:
            pass
        self.findings.expect(sent < _MOST, f"{what}: {sent / MIB:.0f} MiB were accepted")
        self.findings.metrics[f"{what}, sent"] = f"{sent / MIB:.1f} MiB"

    def timed_out(self, what: str, connections: list[socket.socket], expected: int) -> None:
        """Wait until the server refuses slow connections; a full server may answer 503."""
        end = time.monotonic() + self.seconds
        for connection in connections:
            connection.settimeout(max(end - time.monotonic(), 0.1))
            answer = read_answer(connection)
            status = answer.status if answer.complete else 0
            self.findings.answered(what, status, 0.0, documented=(503,))
            self.findings.expect(status in (expected, 503, 0), f"{what}: status {status}, not {expected}")
        late = time.monotonic() - end
        self.findings.expect(late < 1, f"{what}: connections are still open after {self.seconds:g} s")


def _large_headers(flood: _Flood) -> None:
    first = flood.head("GET /v1/streams HTTP/1.1")
    flood.answered("a header of 1 MiB", first + b"X: " + b"x" * MIB + b"\r\n\r\n", 431)
    flood.answered("10,000 headers", first + b"X: y\r\n" * 10_000 + b"\r\n", 431)
    with ExitStack() as stack:
        for _ in range(4):
            connection = stack.enter_context(connected(flood.server))
            connection.sendall(first + b"X: ")
            flood.cut_off("a header without end", connection, _PIECE)


def _long_urls(flood: _Flood) -> None:
    for size in (70_000, MIB):
        flood.answered("a long URL", flood.head(f"GET /{'x' * size} HTTP/1.1") + b"\r\n", 414)
    flood.answered("a long query", flood.head(f"GET /v1/streams?after={'x' * MIB} HTTP/1.1") + b"\r\n", 414)


def _half_open(flood: _Flood) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(flood.server)) for _ in range(_HALF_OPEN)]
        for connection in connections:
            connection.sendall(flood.head("GET /v1/streams HTTP/1.1"))
        flood.timed_out("half a request", connections, 408)


def _slow_bodies(flood: _Flood) -> None:
    head = flood.head(f"POST /v1/streams/{STREAM}/tuples HTTP/1.1", "Content-Type: application/json")
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(flood.server)) for _ in range(_SLOW)]
        for number, connection in enumerate(connections):
            length = b"Content-Length: 1000000" if number % 2 else b"Transfer-Encoding: chunked"
            connection.sendall(head + length + b"\r\n\r\n" + (b"[" if number % 2 else b"1\r\n[\r\n"))
        end = time.monotonic() + min(flood.seconds / 2, 3)
        while time.monotonic() < end:
            for number, connection in enumerate(connections):
                try:
                    connection.sendall(b" " if number % 2 else b"1\r\n \r\n")
                except OSError:
                    continue
            time.sleep(0.1)
        flood.timed_out("a slow body", connections, 408)


def _upgraded(flood: _Flood, stack: ExitStack) -> socket.socket:
    connection = stack.enter_context(connected(flood.server))
    key = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    headers = ("Connection: Upgrade", "Upgrade: websocket", *key)
    connection.sendall(flood.head("GET /v1/feed HTTP/1.1", *headers) + b"\r\n")
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1)
    return connection


def _silent_sockets(flood: _Flood) -> None:
    with ExitStack() as stack:
        connections = [_upgraded(flood, stack) for _ in range(_SILENT)]
        end = time.monotonic() + flood.seconds
        closed = 0
        for connection in connections:
            connection.settimeout(max(end - time.monotonic(), 0.1))
            try:
                closed += bool(connection.recv(100))
            except TimeoutError:
                continue
        flood.findings.frames += _SILENT
        flood.findings.expect(closed == _SILENT, f"{_SILENT - closed} websockets without hello stayed open")


def _unread_pongs(flood: _Flood) -> None:
    with ExitStack() as stack:
        for size, count in ((125, 2000), (0, 40_000)):
            connection = _upgraded(flood, stack)
            what = f"pings of {size} bytes without reading pongs"
            flood.cut_off(what, connection, frame(PING, bytes(size)) * count)


def _unread_answers(flood: _Flood) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(connected(flood.server))
        request = flood.head("GET /openapi.json HTTP/1.1") + b"\r\n"
        flood.cut_off("requests without reading answers", connection, request * 8)


FLOODS: tuple[Callable[[_Flood], None], ...] = (
    _large_headers,
    _long_urls,
    _half_open,
    _slow_bodies,
    _silent_sockets,
    _unread_pongs,
    _unread_answers,
)
