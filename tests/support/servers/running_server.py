"""Real servers for tests: a process on a free port, with a temporary data directory."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import pyarrow as pa
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from mavstream._server_process import ServerProcess
from mavstream_protocol.tuples import encode_message
from mavstream_protocol.wire.envelope import seal

PATIENCE = 30.0
"""Seconds after which a test stops waiting for anything."""

_PAUSE = 0.01  # seconds between two checks

T = TypeVar("T")


def eventually(ask: Callable[[], T | None], what: str, timeout: float = PATIENCE) -> T:
    """Poll a function until it returns something true."""
    end = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < end, f"waited {timeout} s for: {what}"
        pause.wait(_PAUSE)


async def until(ask: Callable[[], T | None], what: str, timeout: float = PATIENCE) -> T:
    """As `eventually`, for a test whose event loop has to run meanwhile."""
    end = time.monotonic() + timeout
    while not (answer := ask()):
        assert time.monotonic() < end, f"waited {timeout} s for: {what}"
        await asyncio.sleep(_PAUSE)
    return answer


class RunningServer(ServerProcess):
    """A server process with an HTTP client and websockets for tests."""

    def __init__(self, data: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        super().__init__(data, *flags, env=env)
        self.token: str | None = None

    def wait_ready(self, timeout: float = PATIENCE) -> Self:
        """Wait until the server is ready; `ready_s` is how long that took."""
        super().wait_ready(timeout)
        self.ready_s = time.monotonic() - self.started
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)
        if self.token:
            self.http.headers["authorization"] = f"Bearer {self.token}"
        return self

    @property
    def ready(self) -> bool:
        return self.http.get("/readyz").status_code == 200

    @property
    def engine_pid(self) -> int | None:
        """The process id of its engine, found as its child."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        for child in children.read_text().split():
            if "engine" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
        return None

    def websocket_url(self, path: str) -> str:
        return "ws" + self.url.removeprefix("http") + path

    def websocket(self, path: str, **options: Any) -> ClientConnection:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        given = {
            "additional_headers": headers,
            "compression": None,
            "open_timeout": PATIENCE,
            "max_size": None,
        }
        opened: ClientConnection = connect(self.websocket_url(path), **{**given, **options})
        return opened

    def clear(self) -> None:
        """Remove all queries and streams for the next test, since a new server takes seconds to start."""
        for kind, key in (("queries", "id"), ("streams", "name")):
            while found := self.http.get(f"/v1/{kind}").json()["items"]:
                for one in found:
                    assert self.http.delete(f"/v1/{kind}/{one[key]}").status_code == 204

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        super().close()
        print("\n".join(self.log))  # shown if a test fails
        if "http" in vars(self):
            self.http.close()


class RawProducer:
    """A producer that sends protocol messages one by one."""

    def __init__(self, server: RunningServer, name: str, *streams: str, **options: Any) -> None:
        self._opened = ExitStack()
        self.socket = self._opened.enter_context(server.websocket("/v1/feed", **options))
        self.send(type="hello", producer=name, streams=streams)
        self.welcome = self.receive()
        assert self.welcome["type"] == "welcome", self.welcome

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def receive(self) -> dict[str, Any]:
        received: dict[str, Any] = json.loads(self.socket.recv(timeout=PATIENCE))
        return received

    def rows(self, stream: str, sequence: int, rows: list[dict[str, Any]]) -> None:
        self.send(type="data", stream=stream, sequence=sequence, rows=rows)

    def columns(self, stream: str, sequence: int, columns: dict[str, list[Any]]) -> None:
        self.send(type="data", stream=stream, sequence=sequence, columns=columns)

    def arrow(self, stream: str, sequence: int, batch: pa.RecordBatch) -> None:
        header = json.dumps({"stream": stream, "sequence": sequence}).encode()
        self.socket.send(seal(header, encode_message(batch)))

    def acked(self, stream: str, sequence: int) -> dict[str, Any]:
        """Wait until everything up to a sequence is acked; any other message fails the test."""
        while True:
            received = self.receive()
            assert received["type"] == "ack", received
            if received["stream"] == stream and received["sequence"] >= sequence:
                return received

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> RawProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def closed_with(socket: ClientConnection) -> tuple[int, str]:
    """Read until the socket is closed; returns the close code and the reason."""
    try:
        while True:
            socket.recv(timeout=PATIENCE)
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd is not None else (1006, "")


@contextmanager
def running_server(
    data: Path, *flags: str, token: str | None = None, env: dict[str, str] | None = None
) -> Iterator[RunningServer]:
    """Run a server, ready in the block, and stop it at the end."""
    server = RunningServer(data, *flags, env=env)
    server.token = token
    try:
        yield server.wait_ready()
    finally:
        server.close()
