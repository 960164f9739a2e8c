"""A subscriber in a process of its own: receives answers of queries and records when they arrived."""

from __future__ import annotations

import gc
import select
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from bench.load.generator import Starting
from bench.load.websocket import Websocket
from mavstream_protocol.wire.envelope import unseal


@dataclass(frozen=True, slots=True)
class ReceiveJob:
    """The queries to subscribe to."""

    url: str
    expected: dict[str, int]
    """How many rows each query will answer, by id."""
    seconds: float
    """How long to wait for them, from the begin."""


class Received(NamedTuple):
    """The answers of a query, in order of their offsets."""

    table: pa.Table
    times: np.ndarray
    """When each row was received, in ns since the epoch."""


class Subscribed(NamedTuple):
    """What a subscriber received."""

    answers: dict[str, Received]
    """By id of the query."""
    cores: float
    """Processor time of the process per second while it received."""


def receive(job: ReceiveJob, starting: Starting) -> Subscribed:
    """Subscribe, wait for the begin, and receive until all rows are there or the time is over."""
    subscribers = {id_: _Subscriber(job.url, id_, rows) for id_, rows in job.expected.items()}
    gc.disable()
    begin = starting.wait()
    waiting = {one.socket: one for one in subscribers.values() if not one.complete}
    until, used = begin + job.seconds, time.process_time()
    while waiting and (left := until - time.time()) > 0:
        for socket in select.select(list(waiting), [], [], left)[0]:
            one = waiting[socket]
            one.read(time.time_ns())
            if one.complete:
                del waiting[socket]
    cores = (time.process_time() - used) / max(time.time() - begin, 1e-3)
    return Subscribed({id_: one.received() for id_, one in subscribers.items()}, cores)


class _Subscriber:
    """A subscription. Messages are only counted while they come, and decoded at the end."""

    def __init__(self, url: str, id_: str, expected: int) -> None:
        self.socket = Websocket(f"{url}/v1/queries/{id_}/results?format=arrow")
        self._expected = expected
        self._rows = 0
        self._payloads: list[memoryview] = []
        self._counts: list[int] = []
        self._times: list[int] = []
        first, *others = self.socket.receive()
        self._schema = _schema(orjson.loads(first)["fields"])
        self._take(others, time.time_ns())

    @property
    def complete(self) -> bool:
        return self._rows >= self._expected

    def read(self, now: int) -> None:
        self._take(self.socket.receive(), now)

    def _take(self, messages: list[str | bytes], now: int) -> None:
        for message in messages:
            if isinstance(message, str):
                raise RuntimeError(f"expected answers, got {message}")
            header, payload = unseal(message)
            count = orjson.loads(header)["count"]
            self._rows += count
            self._payloads.append(payload)
            self._counts.append(count)
            self._times.append(now)

    def received(self) -> Received:
        self.socket.close()
        batches = [pa.ipc.read_record_batch(pa.py_buffer(one), self._schema) for one in self._payloads]
        times = np.repeat(np.array(self._times, dtype=np.int64), self._counts)
        return Received(pa.Table.from_batches(batches, self._schema), times)


_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def _schema(fields: list[dict[str, str]]) -> pa.Schema:
    return pa.schema([(field["name"], _TYPES[field["type"]]) for field in fields])
