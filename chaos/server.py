"""The server that is killed: its processes, and starting it again on the same port and data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from chaos.processes import PROCESSES
from chaos.schedule import Variant
from mavstream import Client, MavstreamError, Retry
from mavstream_server import commands
from mavstream_server.core.storage.failpoints import ONCE_VARIABLE, VARIABLE, parse

PATIENCE = 60.0
"""Seconds after which a wait for the server is a violation."""
CHECKPOINT_INTERVAL = "200ms"
"""Shorter than a round, so that most kills come between two checkpoints or into one."""
_RESULT_BYTES = {True: 256 << 10, False: 256 << 20}
_POLL = 0.01
_PROC = Path("/proc")


class ServerGone(Exception):
    """The server did not do in time what it had to."""


class ChaosServer:
    """A server on a fixed port of the loopback address; only its own processes are ever killed."""

    def __init__(self, folder: Path, variant: Variant) -> None:
        self.data = folder / "data"
        self._log = folder / "log"
        self._fired = folder / "fired"
        """Where failpoints that have acted leave a file."""
        self._fired.mkdir()
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        flags = {
            "--data": self.data,
            "--port": port,
            "--result-bytes": _RESULT_BYTES[variant.small_results],
            "--checkpoint-interval": CHECKPOINT_INTERVAL,
            "--delivery": "sync" if variant.sync else "process",
        }
        self._arguments = [*(str(word) for flag in flags.items() for word in flag), "--no-page"]
        self.client = Client(self.url, retry=Retry(attempts=1))
        self._process = self._start({})
        if not self.wait_ready():
            raise ServerGone(f"the server does not start:\n{self.log_tail()}")

    def _start(self, environment: Mapping[str, str]) -> ForkServerProcess:
        process = PROCESSES.Process(target=_serve, args=(self._arguments, environment, str(self._log)))
        process.start()
        return process

    @property
    def alive(self) -> bool:
        """Whether the API process runs."""
        return self._process.is_alive()

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
        self._process.kill()
        self._process.join(PATIENCE)

    def stop(self) -> int | None:
        """Send SIGTERM to the API process; returns its exit code, None if it does not end."""
        self._process.terminate()
        self._process.join(PATIENCE)
        return self._process.exitcode

    def start_again(self, failpoint: str | None = None) -> None:
        """Start the server again after the death of the API process, perhaps with a failpoint."""
        environment = {}
        if failpoint is not None:
            environment = {VARIABLE: failpoint, ONCE_VARIABLE: str(self._fired)}
            self._marker(failpoint).unlink(missing_ok=True)
        self._process.close()
        self._process = self._start(environment)

    def has_fired(self, failpoint: str) -> bool:
        """Whether a failpoint has acted, or will not any more."""
        return self._marker(failpoint).exists()

    def disarm(self, failpoint: str) -> bool:
        """Make sure that a failpoint does not act from here on; returns whether it has acted."""
        try:
            self._marker(failpoint).touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    def _marker(self, failpoint: str) -> Path:
        return self._fired / parse(failpoint)[0].marker

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
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def copy_to(self, folder: Path) -> None:
        """Copy the data directory and the log of the server."""
        shutil.copytree(self.data, folder / "data", dirs_exist_ok=True)
        shutil.copy(self._log, folder / "log")

    def close(self) -> None:
        """Stop the server."""
        self.client.close()
        self._process.terminate()
        self._process.join(PATIENCE)


def _serve(arguments: list[str], environment: Mapping[str, str], log: str) -> None:
    """Run `mavstream serve` in a forked process, with its standard error in a file."""
    for name in [name for name in os.environ if name.startswith("MAVSTREAM_")]:
        del os.environ[name]
    os.environ.update(environment)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    commands.app(arguments)


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
