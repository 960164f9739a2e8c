"""The server that is killed: its processes, and starting it again on the same port and data."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mavstream import Client, MavstreamError, Retry
from mavstream._server_process import ServerProcess

PATIENCE = 60.0
"""Seconds after which a wait for the server is a violation."""
CHECKPOINT_INTERVAL = "300ms"
"""Shorter than a round, so that most kills come between two checkpoints or into one."""
_POLL = 0.01
_PROC = Path("/proc")


class ServerGone(Exception):
    """The server did not do in time what it had to."""


class ChaosServer:
    """A server on a fixed port of the loopback address; only its own processes are ever killed."""

    def __init__(self, folder: Path, result_bytes: int) -> None:
        self._data = folder / "data"
        self.once = folder / "fired"
        """Where failpoints that have acted leave a file."""
        self.once.mkdir()
        sizes = ("--result-bytes", str(result_bytes), "--checkpoint-interval", CHECKPOINT_INTERVAL)
        self._flags = (*sizes, "--port", str(_free_port()))
        self._process = ServerProcess(self._data, *self._flags).wait_ready(PATIENCE)
        self.url = self._process.url
        self.client = Client(self.url, retry=Retry(attempts=6, most=0.5))

    @property
    def alive(self) -> bool:
        """Whether the API process runs."""
        return self._process.process.poll() is None

    @property
    def engine_pid(self) -> int | None:
        """The process id of the engine, a child of the API process; None while there is none."""
        api = self._process.pid
        with suppress(OSError):
            for child in (_PROC / str(api) / "task" / str(api) / "children").read_text().split():
                with suppress(OSError):
                    if "engine.process.host" in (_PROC / child / "cmdline").read_text():
                        return int(child)
        return None

    def kill_engine(self) -> int | None:
        """Send SIGKILL to the engine; returns its process id, None if there was none."""
        engine = self.engine_pid
        if engine is not None:
            with suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)
        return engine

    def kill_api(self) -> None:
        """Send SIGKILL to the API process, and wait until it has ended."""
        self._process.process.kill()
        self._process.process.wait(PATIENCE)

    def start_again(self, failpoints: str | None = None) -> None:
        """Start the server again after the death of the API process, perhaps with a failpoint."""
        self._process.close()
        env = {}
        if failpoints is not None:
            env = {"MAVSTREAM_FAILPOINTS": failpoints, "MAVSTREAM_FAILPOINTS_ONCE": str(self.once)}
        self._process = ServerProcess(self._data, *self._flags, env=env)

    def wait_ready(self, other_than: int | None = None) -> bool:
        """Wait until the server takes work with an engine other than the given one; False if it died."""

        def ready() -> bool:
            with suppress(MavstreamError):
                return self.engine_pid not in (None, other_than) and self.client.ready()
            return False

        wait_for(lambda: ready() or not self.alive, "the server to be ready")
        return self.alive

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        return "\n".join(self._process.log[-20:])

    def close(self) -> None:
        """Stop the server."""
        self.client.close()
        self._process.close()


def wait_for(done: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    """Poll until something is true; raises ServerGone."""
    end = time.monotonic() + timeout
    while not done():
        if time.monotonic() > end:
            raise ServerGone(f"waited {timeout:g} s for {what}")
        time.sleep(_POLL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
