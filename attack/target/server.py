"""The server under attack: its tokens, its processes, their peak memory and their errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx

from attack.findings import Findings
from mavstream._server_process import ServerProcess
from mavstream_protocol.tokens import TokensFile, TokenSpec, hash_secret, new_secret

PATIENCE = 30.0
"""Seconds after which the suite stops waiting for anything."""
_POLL = 0.02
_PROC = Path("/proc")
ROLES: dict[str, dict[str, Any]] = {role: {"role": role} for role in ("admin", "client", "feeder")}
"""A token for each role."""
_ALL = 1000  # the largest page of a list


class TargetServer(ServerProcess):
    """A server with tokens, one for each role by default, on a free port of the loopback address."""

    def __init__(self, data: Path, *flags: str, tokens: Mapping[str, Mapping[str, Any]] = ROLES) -> None:
        self.tokens = {name: new_secret() for name in tokens}
        """Secrets by name of the token."""
        specs = [
            TokenSpec(name=name, sha256=hash_secret(self.tokens[name]), **spec)
            for name, spec in tokens.items()
        ]
        file = data.with_suffix(".tokens")
        file.write_text(TokensFile(tokens=tuple(specs)).model_dump_json())
        super().__init__(data, *flags, "--tokens-file", str(file))
        self._read = 0

    def wait_ready(self, timeout: float = PATIENCE) -> Self:
        """Return when the server takes work; raises CannotStart."""
        super().wait_ready(timeout)
        self.http = self.client("admin")
        return self

    def client(self, token: str) -> httpx.Client:
        """Return an HTTP client with a token."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE, headers=self.header(token))

    def header(self, token: str) -> dict[str, str]:
        """Return the header with a token."""
        return {"Authorization": f"Bearer {self.tokens[token]}"}

    @property
    def websocket_url(self) -> str:
        """The address for websockets."""
        return "ws" + self.url.removeprefix("http")

    @property
    def engine_pid(self) -> int | None:
        """The process id of the engine; None while there is none."""
        for child in _children(self.pid):
            with suppress(OSError):
                if "engine" in (_PROC / str(child) / "cmdline").read_text():
                    return child
        return None

    def forget_peaks(self) -> None:
        """Measure the peak memory from now on."""
        for pid in (self.pid, self.engine_pid):
            with suppress(OSError):
                (_PROC / str(pid) / "clear_refs").write_text("5")

    def peaks(self) -> tuple[int, int]:
        """Return the peak resident bytes of the API process and of the engine with its forks."""
        engine = self.engine_pid
        return _peak(self.pid), max(_peak(each) for each in (engine, *_children(engine)))

    def new_errors(self) -> tuple[str, ...]:
        """Return the errors and tracebacks that were logged since the last call."""
        lines, self._read = self.log[self._read :], len(self.log)
        return tuple(errors_in(lines))

    def check_health(self, findings: Findings, what: str) -> None:
        """Check that the server is ready and has logged no error since the last check."""
        status = self.http.get("/readyz").status_code
        findings.expect(status == 200, f"{what}: /readyz answers {status}")
        for line in self.new_errors():
            findings.violated(f"{what}: the server logged an error: {line[:1000]}")

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
def target_server(
    data: Path, *flags: str, tokens: Mapping[str, Mapping[str, Any]] = ROLES
) -> Iterator[TargetServer]:
    """Run a server, ready in the block."""
    server = TargetServer(data, *flags, tokens=tokens)
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


def _children(pid: int | None) -> list[int]:
    try:
        return [
            int(child) for child in (_PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
        ]
    except OSError:
        return []


def _peak(pid: int | None) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+)", (_PROC / str(pid) / "status").read_text())
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0
