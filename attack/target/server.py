"""The server under attack: its tokens, its processes, their peak memory and their errors."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx

from attack.findings import Findings
from mavstream._server_process import ServerProcess

PATIENCE = 30.0
"""Seconds after which the suite stops waiting for anything."""
_POLL = 0.02
_PROC = Path("/proc")
_ALL = 1000  # the largest page of a list


class TargetServer(ServerProcess):
    """A server with a token for each role, on a free port of the loopback address."""

    def __init__(self, data: Path, *flags: str) -> None:
        self.tokens = {role: secrets.token_hex(16) for role in ("admin", "client", "feeder")}
        pairs = ",".join(f"{role}:{secret}" for role, secret in self.tokens.items())
        super().__init__(data, *flags, env={"MAVSTREAM_TOKENS": pairs})
        self._read = 0

    def wait_ready(self, timeout: float = PATIENCE) -> Self:
        """Return when the server takes work; raises CannotStart."""
        super().wait_ready(timeout)
        self.http = self.client("admin")
        return self

    def client(self, role: str) -> httpx.Client:
        """Return an HTTP client with the token of a role."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE, headers=self.header(role))

    def header(self, role: str) -> dict[str, str]:
        """Return the header with the token of a role."""
        return {"Authorization": f"Bearer {self.tokens[role]}"}

    @property
    def websocket_url(self) -> str:
        """The address for websockets."""
        return "ws" + self.url.removeprefix("http")

    @property
    def engine_pid(self) -> int | None:
        """The process id of the engine; None while there is none."""
        with suppress(OSError):
            for child in (_PROC / str(self.pid) / "task" / str(self.pid) / "children").read_text().split():
                with suppress(OSError):
                    if "engine" in (_PROC / child / "cmdline").read_text():
                        return int(child)
        return None

    def forget_peaks(self) -> None:
        """Measure the peak memory from now on."""
        for pid in (self.pid, self.engine_pid):
            with suppress(OSError):
                (_PROC / str(pid) / "clear_refs").write_text("5")

    def peaks(self) -> tuple[int, int]:
        """Return the peak resident bytes of the API process and of the engine."""
        return _peak(self.pid), _peak(self.engine_pid)

    def new_errors(self) -> tuple[str, ...]:
        """Return the errors and tracebacks that were logged since the last call."""
        lines, self._read = self.log[self._read :], len(self.log)
        return tuple(errors_in(lines))

    def create(self, path: str, body: object, method: str = "POST") -> dict[str, Any]:
        """Create something as administrator; a refusal is an error."""
        answer = self.http.request(method, path, json=body)
        if answer.status_code >= 300:
            raise RuntimeError(f"{path}: {answer.text}")
        found: dict[str, Any] = answer.json()
        return found

    def engine(self) -> dict[str, Any]:
        """Return the statistics of the engine."""
        found: dict[str, Any] = self.http.get("/v1/stats").json()["engine"]
        return found

    def tidy(self, *keep: str) -> None:
        """Remove all queries, streams and tables but those with these ids and names."""
        for kind, key in (("queries", "id"), ("streams", "name"), ("tables", "name")):
            for _ in range(100):
                found = self.http.get(f"/v1/{kind}", params={"limit": _ALL}).json()["items"]
                names = [each[key] for each in found if each[key] not in keep]
                if not names:
                    break
                for name in names:
                    self.http.delete(f"/v1/{kind}/{name}")

    def close(self) -> None:
        """Stop the server."""
        if "http" in vars(self):
            self.http.close()
        super().close()


@contextmanager
def target_server(data: Path, *flags: str) -> Iterator[TargetServer]:
    """Run a server, ready in the block."""
    server = TargetServer(data, *flags)
    try:
        yield server.wait_ready()
    finally:
        server.close()


def send(http: httpx.Client, findings: Findings, method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request and record its answer."""
    begin = time.monotonic()
    answer = http.request(method, path, **options)
    findings.answered(f"{method} {path[:80]}", answer.status_code, time.monotonic() - begin)
    return answer


def errors_in(lines: list[str]) -> Iterator[str]:
    """Return the lines of a log that are errors, or that no server should log, such as tracebacks."""
    for line in lines:
        known = line.startswith("{") and line.endswith("}")
        if '"level": "error"' in line or '"level":"error"' in line or "Traceback" in line or not known:
            yield line


def _peak(pid: int | None) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+)", (_PROC / str(pid) / "status").read_text())
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0
