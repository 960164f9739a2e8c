"""A producer in a process of its own: sends the frames of a schedule when they are due."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import orjson

from bench.load.generator import Starting
from bench.load.schedule import Schedule
from bench.load.websocket import Websocket, encode

_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class SendJob:
    """What to send, and where."""

    url: str
    stream: str
    schedule: Schedule
    encode_first: bool = True
    """Whether all frames are encoded before the first is sent; a long schedule does not fit in memory."""


class Sent(NamedTuple):
    """Frames of a schedule that were sent, all of them acked."""

    frames: int
    """How many. A producer that was held back by credit does not send what is left when its time is over."""
    rows: int
    times: np.ndarray
    """When each was handed to the socket, in ns since the epoch."""
    lags: np.ndarray
    """How much later than due that was, in ms, for frames that did not wait for credit."""
    held_s: float
    """How long frames that were due waited for credit."""
    cores: float
    """Processor time of the process per second while it sent."""


def send(job: SendJob, starting: Starting) -> Sent:
    """Connect and encode, wait for the begin, then send; returns when all is acked."""
    producer = _Producer(job)
    schedule = job.schedule
    dues, stops = schedule.frame_dues, schedule.frame_stops
    messages: Iterable[bytes] = schedule.messages(job.stream)
    if job.encode_first:
        messages = list(messages)
    gc.disable()
    begin = starting.wait()
    over, used = begin + schedule.seconds, time.process_time()
    times, lags, held, sent = [], [], 0.0, 0
    for due, message in zip((dues + begin).tolist(), messages, strict=True):
        producer.sleep_until(due)
        waited = producer.wait_for_credit(len(message), over)
        if waited is None:
            break
        held += waited
        now = time.time_ns()
        producer.send(message)
        times.append(now)
        if not waited:
            lags.append(now / 1e6 - due * 1e3)
        sent += 1
    used = (time.process_time() - used) / schedule.seconds
    producer.wait_for_acks()
    rows = int(stops[sent - 1]) if sent else 0
    return Sent(sent, rows, np.array(times), np.array(lags), held, used)


class _Producer:
    """A connection with its credit; acks are read whenever it waits."""

    def __init__(self, job: SendJob) -> None:
        self._socket = Websocket(f"{job.url}/v1/feed")
        hello = {"type": "hello", "producer": f"producer_{job.stream}", "streams": [job.stream]}
        self._socket.send(encode(orjson.dumps(hello).decode()))
        self._credit = 0
        self._sequence = self._acked = self._under_way = 0
        self._sizes: deque[int] = deque()
        (welcome,) = self._socket.receive()
        message = orjson.loads(welcome)
        if message["type"] != "welcome":
            raise RuntimeError(f"the server did not welcome the producer: {message}")
        self._credit = message["streams"][job.stream]["credit"]

    def sleep_until(self, due: float) -> None:
        while (left := due - time.time()) > 0:
            if self._socket.wait(left):
                self._read()

    def wait_for_credit(self, size: int, until: float) -> float | None:
        """Return how long that took, exactly 0 if there was credit; None if there was none in time."""
        if self._fits(size):
            return 0.0
        begin = time.time()
        while not self._fits(size):
            if (left := until - time.time()) <= 0:
                return None
            if self._socket.wait(left):
                self._read()
        return time.time() - begin

    def send(self, message: bytes) -> None:
        self._sequence += 1
        self._sizes.append(len(message))
        self._under_way += len(message)
        self._socket.send(message)

    def wait_for_acks(self) -> None:
        until = time.time() + _PATIENCE
        while self._acked < self._sequence:
            if not self._socket.wait(until - time.time()):
                raise TimeoutError(f"frame {self._acked + 1} was not acked within {_PATIENCE:g} s")
            self._read()
        self._socket.close()

    def _fits(self, size: int) -> bool:
        # Without credit nothing may be sent; with some, a larger frame may be in flight alone.
        return self._credit > 0 and (not self._under_way or self._under_way + size <= self._credit)

    def _read(self) -> None:
        for text in self._socket.receive():
            message = orjson.loads(text)
            if message["type"] != "ack":
                raise RuntimeError(f"expected an ack, got {message}")
            self._credit = message["credit"]
            while self._acked < message["sequence"]:
                self._acked += 1
                self._under_way -= self._sizes.popleft()
