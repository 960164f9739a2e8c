"""Sliding figures: what a query did over the last seconds, from figures that count since its start."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from mavstream_server.core.metrics import Latency


class Measured(Protocol):
    """The figures of a query since its start, in whatever form an engine told them."""

    @property
    def epoch(self) -> int:
        """How often it was instantiated."""

    @property
    def rows_in(self) -> int:
        """Rows that it read."""

    @property
    def latency(self) -> Latency:
        """Of its answers."""

    @property
    def queued_bytes(self) -> int:
        """Between its operators."""

    @property
    def state_bytes(self) -> int:
        """Held by its operators."""

    @property
    def backlog_bytes(self) -> int:
        """Not read yet."""


class Sample(NamedTuple):
    """A query at one time."""

    at: float
    """Seconds."""
    epoch: int
    latency: Latency
    rows_in: int
    held: int
    """Bytes in queues, state and backlog."""
    waiting: bool
    """Whether rows wait that it has not read."""


def sample(at: float, stats: Measured) -> Sample:
    """Return what matters of a query's figures."""
    held = stats.queued_bytes + stats.state_bytes + stats.backlog_bytes
    waiting = stats.backlog_bytes + stats.queued_bytes > 0
    return Sample(at, stats.epoch, stats.latency, stats.rows_in, held, waiting)


class SlidingMetrics:
    """Samples of one query over a length of time; a new epoch begins anew."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[Sample] = deque()
        self._whole = True  # the first sample of the epoch is still there

    def add(self, new: Sample) -> None:
        """Take a sample; the last one ahead of the length stays, as what the others are counted from."""
        samples = self._samples
        if samples and samples[-1].epoch != new.epoch:
            samples.clear()
            self._whole = True
        samples.append(new)
        while len(samples) > 2 and samples[1].at <= new.at - self._seconds:
            samples.popleft()
            self._whole = False

    @property
    def empty(self) -> bool:
        """Whether there is no sample."""
        return not self._samples

    @property
    def _spans(self) -> bool:
        return len(self._samples) > 1

    @property
    def latency(self) -> Latency:
        """Of the answers that came within the length; at first, since the query began."""
        if not self._samples:
            return Latency()
        last = self._samples[-1].latency
        return last if self._whole else last.since(self._samples[0].latency)

    @property
    def silent_ms(self) -> float | None:
        """How long rows have waited at least while no answer came, or None if answers come."""
        if not self._spans or not all(one.waiting for one in self._samples):
            return None
        first, last = self._samples[0], self._samples[-1]
        return 1000 * (last.at - first.at) if last.latency.count == first.latency.count else None

    @property
    def rows_per_s(self) -> float | None:
        """Rows read per second, or None until there are two samples."""
        if not self._spans:
            return None
        first, last = self._samples[0], self._samples[-1]
        return (last.rows_in - first.rows_in) / (last.at - first.at) if last.at > first.at else None

    @property
    def held(self) -> int | None:
        """The most bytes that it held at any of the samples, or None without one."""
        return max((one.held for one in self._samples), default=None)

    @property
    def waiting(self) -> bool:
        """Whether rows wait now."""
        return bool(self._samples) and self._samples[-1].waiting
