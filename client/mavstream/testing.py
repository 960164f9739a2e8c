"""Servers for tests and examples: a process on a free port, gone at the end of the block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any

from mavstream._client import Client
from mavstream._errors import CannotStart, TransportError

__all__ = ["start_server"]

_NEEDED = ("mavstream_server", "fastapi", "uvicorn", "httptools", "prometheus_client")


@contextmanager
def start_server(
    data: str | os.PathLike[str] | None = None, *, timeout: float = 30.0, **settings: Any
) -> Iterator[str]:
    """Run a server and give its address once it takes work; raises CannotStart.

    Without `data` it keeps nothing. `settings` are those of `mavstream serve`: `policy="wrr"`,
    `max_queries=10`, `tokens="admin:secret"`.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CannotStart(
            f"a server needs {', '.join(missing)}, which is not installed: pip install 'mavstream[server]'"
        )
    with ExitStack() as stack:
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="mavstream-"))
        server = _Server(Path(data), settings)
        stack.callback(server.stop)
        yield server.wait(timeout)


class _Server:
    """The process, and the end of what it logged."""

    def __init__(self, data: Path, settings: dict[str, Any]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAVSTREAM_")}
        environment |= {f"MAVSTREAM_{name.upper()}": _text(value) for name, value in settings.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mavstream_server.commands", "--data", str(data), "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._lines: deque[str] = deque(maxlen=50)
        self._url = ""
        self._heard = Event()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self, timeout: float) -> str:
        """Return the address when the server takes work."""
        until = time.monotonic() + timeout
        self._heard.wait(timeout)
        if not self._url:
            raise CannotStart(f"the server did not start within {timeout:g} s:\n{self._story()}")
        with Client(self._url) as client:
            while not self._ready(client):
                if time.monotonic() > until or self._process.poll() is not None:
                    raise CannotStart(f"the server did not get ready:\n{self._story()}")
                time.sleep(0.01)
        return self._url

    def stop(self) -> None:
        """End the process, first gently."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    @staticmethod
    def _ready(client: Client) -> bool:
        try:
            return client.ready()
        except TransportError:
            return False

    def _read(self) -> None:
        """Keep reading, or the pipe fills up and the server waits; note the address when it is told."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if not self._url and '"listening"' in line:
                self._url = json.loads(line)["url"]
                self._heard.set()
        self._heard.set()

    def _story(self) -> str:
        return "".join(self._lines) or "it said nothing"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict) else str(value)
