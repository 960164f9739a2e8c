"""Classes of queries on a server under load: deployed, fed by producers, received by a subscriber."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.load.generator import Generator, begin_together
from bench.load.receiver import Received, ReceiveJob, Subscribed, receive
from bench.load.schedule import Schedule
from bench.load.sender import SendJob, Sent, send
from bench.load.server_process import ServerProcess
from bench.workload.class_queries import READERS, ClassQuery, class_queries
from bench.workload.readings import EVENT_TIME, FIELDS

WARM_UP = 1.0
"""Seconds at the beginning of a run that are not measured."""
_POLL = 0.6  # seconds; the server's statistics are up to half a second old
_PATIENCE = 180.0


@dataclass(frozen=True, slots=True)
class DeployedClass:
    """The queries of a class on a stream of their own."""

    name: str
    stream: str
    ids: tuple[str, ...]
    queries: tuple[ClassQuery, ...] = field(compare=False)


@contextmanager
def deployed(
    running: ServerProcess,
    name: str,
    stream: str,
    queries: Sequence[ClassQuery] | None = None,
    qos: Mapping[str, Any] | None = None,
) -> Iterator[DeployedClass]:
    """Create a stream with the queries of a class, all of them by default; removed at the end."""
    made = tuple(class_queries(stream) if queries is None else queries)
    running.post("/v1/streams", {"name": stream, "fields": FIELDS, "event_time": EVENT_TIME})
    ids = [
        running.post(
            "/v1/queries",
            {"name": f"{stream}_{n}", "class": name, "plan": query.plan, "qos": qos or {}},
        )["id"]
        for n, query in enumerate(made)
    ]
    try:
        yield DeployedClass(name, stream, tuple(map(str, ids)), made)
    finally:
        for id_ in ids:
            running.http.delete(f"/v1/queries/{id_}").raise_for_status()
        running.http.delete(f"/v1/streams/{stream}").raise_for_status()


class Progress(NamedTuple):
    """What the queries of a class had done at a time of the engine."""

    at: float
    """Seconds since the engine started."""
    rows_in: int
    results: int
    busy_s: float

    def rates_since(self, before: Progress) -> tuple[float, float]:
        """Return tuples of the stream and results per second."""
        elapsed = self.at - before.at
        return (self.rows_in - before.rows_in) / READERS / elapsed, (self.results - before.results) / elapsed


def progress(running: ServerProcess) -> dict[str, Progress]:
    """Return the progress of all classes."""
    stats = running.http.get("/v1/stats").json()
    at = stats["engine"]["uptime_s"]
    return {
        name: Progress(at, one["rows_in"], one["results"], one["busy_s"])
        for name, one in stats["classes"].items()
    }


def _progress_after(running: ServerProcess, before: Mapping[str, Progress]) -> dict[str, Progress]:
    """Return the progress at a later time of the engine: the server caches it for half a second."""
    while (now := progress(running)) == before:
        time.sleep(_POLL / 10)
    return now


class ClassRun(NamedTuple):
    """What happened while classes were fed."""

    begin: float
    """Seconds since the epoch."""
    sent: dict[str, Sent]
    received: dict[str, Received]
    """By id of the query."""
    subscriber_cores: float
    """Processor time of the subscriber per second."""
    before: dict[str, Progress]
    warm: dict[str, Progress]
    """When the first second was over."""
    after: dict[str, Progress]
    """When the schedules ended, however much was waiting."""
    server_cores: float
    """Processor time of the server per second, once warm."""

    def rates(self, name: str) -> tuple[float, float]:
        """Return how many tuples a class read and how many results it gave per second, once warm."""
        return self.after[name].rates_since(self.warm[name])


def run_classes(
    running: ServerProcess,
    loads: Mapping[DeployedClass, Schedule],
    expected: Mapping[str, int],
    encode_first: bool = True,
) -> ClassRun:
    """Feed classes, each by a process of its own, and receive the answers of some queries in another.

    `expected` has the number of answers by id of query.
    """
    url = running.websocket_url
    with ExitStack() as open_:

        def started(work: Any, job: Any) -> Generator[Any, Any]:
            made: Generator[Any, Any] = Generator(work, job)
            open_.callback(made.close)
            return made

        senders = {
            load.name: started(send, SendJob(url, load.stream, schedule, encode_first))
            for load, schedule in loads.items()
        }
        seconds = max(schedule.seconds for schedule in loads.values())
        receiver = (
            started(receive, ReceiveJob(url, dict(expected), seconds + _PATIENCE)) if expected else None
        )
        # Not what the server has cached: it may count queries of an earlier phase that were removed since.
        before = _progress_after(running, progress(running))
        begin = begin_together(*senders.values(), *([receiver] if receiver else []))
        time.sleep(max(begin + WARM_UP - time.time(), 0.0))
        warm, used = progress(running), running.cpu_s()
        at = time.monotonic()
        time.sleep(max(begin + seconds - time.time(), 0.0))
        cores = (running.cpu_s() - used) / (time.monotonic() - at)
        after = _progress_after(running, warm)
        sent = {name: sender.report() for name, sender in senders.items()}
        subscribed: Subscribed = receiver.report() if receiver else Subscribed({}, 0.0)
    return ClassRun(begin, sent, *subscribed, before, warm, after, cores)


def unread(running: ServerProcess, name: str, before: Progress, rows: int) -> int:
    """Give a class time to read what is waiting; returns how many of these rows it has not read then.

    Negative if it has read more than there were.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        missing = before.rows_in + rows * READERS - progress(running)[name].rows_in
        if missing <= 0 or time.monotonic() > until:
            return missing
        time.sleep(_POLL)
