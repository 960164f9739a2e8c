"""A server as a child process: started on a free port, waited for, and stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from mavstream._client import Client
from mavstream._errors import CannotStart, TransportError

_POLL = 0.01
"""Seconds between two looks at a server that starts."""


class ServerProcess:
    """`mavstream serve` on a free port, and its log; without the browser page, unless asked for.

    Environment variables of the server (`MAVSTREAM_...`) are not inherited; `env` sets them.
    """

    def __init__(self, data: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.url = ""
        """The server's address, once it listens."""
        self.started = time.monotonic()
        # A file and not a pipe, which would block the server when nobody reads it.
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._lines: list[str] = []
        others = {name: value for name, value in os.environ.items() if not name.startswith("MAVSTREAM_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mavstream_server.commands", "--data", str(data), "--port", "0", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env={**others, "MAVSTREAM_PAGE": "false", **(env or {})},
        )

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self.process.pid

    @property
    def log(self) -> list[str]:
        """The lines that the server has logged so far."""
        if not self._log.closed:
            self._log.seek(0)
            self._lines = self._log.read().decode(errors="replace").splitlines()
        return self._lines

    def events(self) -> list[dict[str, Any]]:
        """Return the logged lines that are JSON objects."""
        return [json.loads(line) for line in self.log if line.startswith("{") and line.endswith("}")]

    def wait_ready(self, timeout: float = 30.0) -> Self:
        """Return when the server takes work; raises CannotStart."""
        self._wait_for(self._find_url, timeout, "start")
        with Client(self.url) as client:
            self._wait_for(lambda: _ready(client), timeout, "get ready")
        return self

    def stop(self, timeout: float = 30.0) -> int:
        """Terminate the process, and kill it if it does not end in time; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> None:
        """Stop the process and give up its log file; the log can still be read."""
        self.stop()
        self._lines = self.log
        self._log.close()

    def _wait_for(self, done: Callable[[], bool], timeout: float, what: str) -> None:
        until = time.monotonic() + timeout
        while not done():
            log = "\n".join(self.log[-50:]) or "it logged nothing"
            if self.process.poll() is not None:
                raise CannotStart(f"the server ended with code {self.process.returncode}:\n{log}")
            if time.monotonic() > until:
                raise CannotStart(f"the server did not {what} within {timeout:g} s:\n{log}")
            time.sleep(_POLL)

    def _find_url(self) -> bool:
        found = (event["url"] for event in self.events() if event.get("event") == "listening")
        self.url = next(found, "")
        return bool(self.url)


def _ready(client: Client) -> bool:
    try:
        return client.ready()
    except TransportError:
        return False
