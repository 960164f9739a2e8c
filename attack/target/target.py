"""The target of an attack: the server with its bystanders, and room for further servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from attack.invariants import MIB, Limits, Observed
from attack.target.bystanders import Bystanders
from attack.target.server import TargetServer, target_server

QUERY_MEMORY = 64 * MIB
ENGINE_MEMORY = 640 * MIB
LIMITS = Limits(engine_bytes=ENGINE_MEMORY + 128 * MIB)
"""The engine's limit counts what is allocated; code, stacks and mapped logs come on top."""
FLAGS = (
    *("--query-memory", f"{QUERY_MEMORY}", "--engine-memory", f"{ENGINE_MEMORY}"),
    *("--max-body-bytes", "4MiB", "--max-frame-bytes", "4MiB", "--result-bytes", "4MiB"),
    *("--max-streams", "200", "--max-queries", "200", "--max-tables", "100", "--max-producers", "100000"),
    *("--max-connections", "300", "--max-pending-feeds", "100"),
    *("--header-timeout", "1s", "--body-timeout", "1s", "--hello-timeout", "1s", "--send-timeout", "1s"),
)
"""Small limits and time-outs, so that attacks reach them soon."""


class Target(NamedTuple):
    """What attacks work with."""

    server: TargetServer
    keep: tuple[str, ...]
    """Names of the bystanders' objects, which must stay."""
    folder: Path
    """An empty folder, for attacks with servers of their own."""

    def tidy(self) -> None:
        """Remove everything that attacks have created."""
        self.server.tidy(*self.keep)


class Watch:
    """Watches the server and its bystanders from one attack to the next."""

    def __init__(self, server: TargetServer, bystanders: Bystanders) -> None:
        self._server = server
        self._bystanders = bystanders

    def begin(self) -> int:
        """Begin to observe an attack; returns how many rows of the bystanders were acked before."""
        self._engine = self._server.engine_pid
        self._server.forget_peaks()
        self._server.new_errors()
        return self._bystanders.report().acked

    def end(self) -> Observed:
        """Return what was observed since the beginning of the attack."""
        waits = self._bystanders.report()
        api, engine = self._server.peaks()
        return Observed(waits, api, engine, self._engine, self._server.engine_pid, self._server.new_errors())


@contextmanager
def target(folder: Path) -> Iterator[tuple[Target, Watch]]:
    """Run a server with bystanders."""
    with target_server(folder / "target", *FLAGS) as server:
        bystanders = Bystanders(server)
        try:
            yield Target(server, bystanders.names, folder), Watch(server, bystanders)
        finally:
            bystanders.close()
