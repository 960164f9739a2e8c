"""A server process under measurement: its start time and its resource usage."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from mavstream._server_process import ServerProcess as _StartedServer

_PATIENCE = 60.0


class ServerProcess:
    """A real server on a free port of the loopback address, with its engine as a child process."""

    def __init__(self, data: Path, *flags: str) -> None:
        """`flags` are options of the command."""
        self.data = data
        self._server = _StartedServer(data, *flags)
        try:
            self.url = self._server.wait_ready(_PATIENCE).url
        except BaseException:
            self._server.close()
            raise
        self.ready_s = time.monotonic() - self._server.started
        self.http = httpx.Client(base_url=self.url, timeout=_PATIENCE)

    @property
    def websocket_url(self) -> str:
        """The address for websockets."""
        return "ws" + self.url.removeprefix("http")

    @property
    def pids(self) -> list[int]:
        """The API process and its engine."""
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    @property
    def engine_pid(self) -> int | None:
        """The engine's process id; None while there is none."""
        for pid in self.pids[1:]:
            with suppress(OSError):
                if "engine.process.host" in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        return None

    def rss_mb(self) -> float:
        """Return the resident memory of both processes together."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        """Return the processor time that both processes have used."""
        return sum(time.clock_gettime(cpu_clock(pid)) for pid in self.pids)

    def post(self, path: str, body: object) -> dict[str, object]:
        """Create something; a refusal is an error."""
        return self._send("POST", path, body)

    def put(self, path: str, body: object) -> dict[str, object]:
        """Set something; a refusal is an error."""
        return self._send("PUT", path, body)

    def _send(self, method: str, path: str, body: object) -> dict[str, object]:
        answer = self.http.request(method, path, json=body)
        if answer.status_code >= 300:
            raise RuntimeError(f"{path}: {answer.text}")
        found: dict[str, object] = answer.json()
        return found

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Give the API process a core of its own, as if it were on another machine.

        Linux may move a process that is woken by a message to the core of the sender, which continues there.
        """
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            yield
            return
        api, *engines = self.pids
        for thread in Path(f"/proc/{api}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {min(cores)})
        for pid in (0, *engines):
            os.sched_setaffinity(pid, cores - {min(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)

    def close(self) -> None:
        """Stop the server."""
        self.http.close()
        self._server.close()

    def trouble(self) -> list[str]:
        """Return the warnings and errors that the server logged."""
        return [line for line in self._server.log if '"level": "info"' not in line]


def cpu_clock(pid: int) -> int:
    """Return the clock of a process's processor time, as Linux numbers it (`clock_getcpuclockid`)."""
    return (~pid << 3) | 2


@contextmanager
def server(*flags: str) -> Iterator[ServerProcess]:
    """Run a server with options of the command in a directory of its own."""
    with tempfile.TemporaryDirectory() as folder:
        process = ServerProcess(Path(folder), *flags)
        try:
            yield process
        finally:
            process.close()
