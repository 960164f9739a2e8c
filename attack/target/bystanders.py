"""Bystanders: a producer, a subscriber and health checks that run beside the attacks, in another process."""

from __future__ import annotations

from multiprocessing import get_context
from typing import NamedTuple

from attack.invariants import Waits
from attack.target.bystander_process import Job, run
from attack.target.server import PATIENCE, TargetServer

STREAM = "bystander_rows"
CLASS = "bystander"
_PROCESSES = get_context("spawn")
_FIELDS = [{"name": "n", "type": "int"}]
_PLAN = {
    "root": "out",
    "nodes": {
        "in": {"op": "source", "stream": STREAM},
        "out": {"op": "select", "input": "in", "where": "n >= 0"},
    },
}


class Names(NamedTuple):
    """The objects of the bystanders, which the suite must not remove."""

    stream: str
    query: str


class Bystanders:
    """The process of the bystanders; their query is of the most important class."""

    def __init__(self, server: TargetServer) -> None:
        server.create(f"/v1/classes/{CLASS}", {"name": CLASS, "priority": 10}, "PUT")
        server.create("/v1/streams", {"name": STREAM, "fields": _FIELDS, "retention": {"time": "1m"}})
        made = server.create("/v1/queries", {"name": "bystander", "class": CLASS, "plan": _PLAN})
        self.names = Names(STREAM, str(made["id"]))
        self._connection, other = _PROCESSES.Pipe()
        job = Job(server.url, server.tokens["admin"], STREAM, self.names.query)
        self._process = _PROCESSES.Process(target=run, args=(job, other), daemon=True)
        self._process.start()
        other.close()
        self._receive()

    def report(self) -> Waits:
        """Wait until every acked row is answered, and return what was seen since the last report."""
        self._connection.send(None)
        return self._receive()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._connection.close()

    def _receive(self) -> Waits:
        if not self._connection.poll(2 * PATIENCE):
            raise TimeoutError(f"the bystanders said nothing for {2 * PATIENCE:g} s")
        found: Waits = self._connection.recv()
        return found
