"""Load generators: functions that run in processes of their own and begin at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

_LEAD = 0.2  # seconds between the decision to begin and the begin
_PATIENCE = 600.0
# Forked from a process that has imported what they need: starting one costs milliseconds.
_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload(["bench.load.sender", "bench.load.receiver"])

Job = TypeVar("Job")
Report = TypeVar("Report")


class Starting:
    """The generator's end: tells that it is prepared, and learns when to begin."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wait(self) -> float:
        """Return the begin, in seconds since the epoch, which is in the near future."""
        self._connection.send(None)
        begin: float = self._connection.recv()
        return begin


class Generator(Generic[Job, Report]):
    """A process that prepares a job, waits for the begin, does it and reports."""

    def __init__(self, work: Callable[[Job, Starting], Report], job: Job) -> None:
        self._connection, other = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_run, args=(work, job, other), daemon=True)
        self._process.start()
        other.close()

    def prepared(self) -> None:
        """Return when it is ready to begin."""
        self._receive()

    def begin(self, at: float) -> None:
        """Tell it when to begin."""
        self._connection.send(at)

    def report(self) -> Report:
        """Wait for its end and return its report; raises what it raised."""
        found: Report = self._receive()
        self._process.join()
        return found

    def close(self) -> None:
        """End the process if it still runs."""
        self._process.terminate()
        self._process.join()
        self._connection.close()

    def _receive(self) -> Any:
        if not self._connection.poll(_PATIENCE):
            raise TimeoutError(f"a load generator said nothing for {_PATIENCE:g} s")
        found = self._connection.recv()
        if isinstance(found, Exception):
            raise found
        return found


def begin_together(*generators: Generator[Any, Any]) -> float:
    """Wait until all are prepared and have them begin at one time, which is returned."""
    for one in generators:
        one.prepared()
    at = time.time() + _LEAD
    for one in generators:
        one.begin(at)
    return at


def _run(work: Callable[[Any, Starting], Any], job: Any, connection: Connection) -> None:
    try:
        connection.send(work(job, Starting(connection)))
    except Exception as error:
        connection.send(error)
