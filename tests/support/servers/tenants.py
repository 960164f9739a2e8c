"""A server with named tokens, for tests of who may do what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.commands.in_process import command
from tests.support.servers.running_server import PATIENCE, RunningServer, running_server


class Tenants:
    """The secrets of the tokens of a server, and its HTTP clients by name."""

    def __init__(self, server: RunningServer, secrets: dict[str, str]) -> None:
        self.server = server
        self.secrets = secrets

    def http(self, name: str) -> httpx.Client:
        header = {"authorization": f"Bearer {self.secrets[name]}"}
        return httpx.Client(base_url=self.server.url, timeout=PATIENCE, headers=header)

    def ask(self, name: str, method: str, path: str, **options: Any) -> httpx.Response:
        with self.http(name) as http:
            return http.request(method, path, **options)

    def header(self, name: str) -> dict[str, Any]:
        """Return the options of a websocket."""
        return {"additional_headers": {"Authorization": f"Bearer {self.secrets[name]}"}}


@contextmanager
def tenants(folder: Path, tokens: dict[str, Sequence[str]], *flags: str) -> Iterator[Tenants]:
    """Run a server with tokens, given by name with the flags of `mavstream token create`; and `root`."""
    file = folder / "tokens.json"
    folder.mkdir(parents=True, exist_ok=True)
    secrets = {}
    for name, words in {"root": ("--role", "admin"), **tokens}.items():
        if name not in secrets:
            done = command("token", "create", name, *words, "--file", str(file), "--if-missing")
            assert done.returncode == 0, done.stderr
            secrets[name] = done.stdout.strip()
    with running_server(folder / "data", "--tokens-file", str(file), *flags, token=secrets["root"]) as server:
        yield Tenants(server, secrets)
