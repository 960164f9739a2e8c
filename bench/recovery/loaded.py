"""A server with the workload's queries while its streams are fed and its answers are received."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from bench.load.generator import Generator, begin_together
from bench.load.receiver import Received, ReceiveJob, Subscribed, receive
from bench.load.sender import SendJob, Sent, send
from bench.load.server_process import ServerProcess
from bench.recovery.workload import IMPORTANT, PRIORITIES, Load

_PATIENCE = 120.0


class LoadedServer:
    """The queries of loads on a server, and the generators that feed and read them."""

    def __init__(self, running: ServerProcess, loads: Sequence[Load], unread: Sequence[Load] = ()) -> None:
        """The answers of `unread` loads are neither received nor checked."""
        self.running = running
        self.loads = loads
        self._unread = unread
        for name, priority in PRIORITIES.items():
            running.put(f"/v1/classes/{name}", {"name": name, "priority": priority})
        self.ids = [load.deploy(running) for load in (*loads, *unread)]
        self.begin = 0.0
        """When the schedules began, in seconds since the epoch."""
        self.received: dict[str, Received] = {}
        self._generators: list[Generator[Any, Any]] = []

    @contextmanager
    def fed(self) -> Iterator[None]:
        """Feed all streams and receive all answers meanwhile; the end waits for the last answer."""
        url, every = self.running.websocket_url, (*self.loads, *self._unread)
        seconds = max(load.schedule.seconds for load in every)
        expected: dict[str, int] = {}
        for load, ids in zip(self.loads, self.ids, strict=False):
            expected |= load.counts(ids)
        with ExitStack() as open_:

            def started(work: Any, job: Any) -> Generator[Any, Any]:
                made: Generator[Any, Any] = Generator(work, job)
                open_.callback(made.close)
                return made

            senders: list[Generator[SendJob, Sent]] = [
                started(send, SendJob(url, load.stream, load.schedule)) for load in every
            ]
            receiver: Generator[ReceiveJob, Subscribed] = started(
                receive, ReceiveJob(url, expected, seconds + _PATIENCE)
            )
            self.begin = begin_together(*senders, receiver)
            yield
            for sender in senders:
                sender.report()
            self.received = receiver.report().answers

    def sleep_until(self, seconds: float) -> None:
        """Return when so many seconds of the schedules are over."""
        time.sleep(max(self.begin + seconds - time.time(), 0.0))

    def wrong(self) -> int:
        """Return how many answers are missing, wrong or too many."""
        return sum(load.wrong(ids, self.received) for load, ids in zip(self.loads, self.ids, strict=False))

    def latencies(self, begin: float, end: float) -> np.ndarray:
        """Return the latencies (ms) of the important class, of what is due between two times."""
        taken = []
        for load, ids in zip(self.loads, self.ids, strict=False):
            if load.class_name == IMPORTANT:
                for query, id_ in zip(load.queries, ids, strict=True):
                    received = self.received[id_]
                    due = load.due_ns(query, received, self.begin)
                    since = due / 1e9 - self.begin
                    taken.append(((received.times - due) / 1e6)[(since >= begin) & (since < end)])
        return np.concatenate(taken)

    def state_mb(self) -> float:
        """Return the state of all queries, as of the last half second."""
        return float(self.engine()["memory_bytes"]["state"]) / 1e6

    def engine(self) -> dict[str, Any]:
        """Return the metrics of the engine, as of the last half second."""
        found: dict[str, Any] = self.running.http.get("/v1/stats").json()["engine"]
        return found
