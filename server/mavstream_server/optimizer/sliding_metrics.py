"""Sliding metrics: activity of a query over the last seconds, derived from cumulative metrics."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from mavstream_server.core.metrics import Latency


class Measured(Protocol):
    """Metrics of a query, cumulative since it was started, in any form that an engine reports."""

    @property
    def epoch(self) -> int:
        """Number of times that the query was started."""

    @property
    def rows_in(self) -> int:
        """Rows that the query read."""

    @property
    def latency(self) -> Latency:
        """Latency of its answers."""

    @property
    def queued_bytes(self) -> int:
        """Bytes queued between its operators."""

    @property
    def state_bytes(self) -> int:
        """Bytes of operator state."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes in the stream logs that the query has not read yet."""


class Sample(NamedTuple):
    """A sample of a query's metrics."""

    at: float
    """Time of the sample, in seconds."""
    epoch: int
    latency: Latency
    rows_in: int
    held: int
    """Bytes in queues, state and backlog."""
    waiting: bool
    """Whether there are unread rows."""


def sample(at: float, metrics: Measured) -> Sample:
    """Return a sample of a query's metrics."""
    held = metrics.queued_bytes + metrics.state_bytes + metrics.backlog_bytes
    waiting = metrics.backlog_bytes + metrics.queued_bytes > 0
    return Sample(at, metrics.epoch, metrics.latency, metrics.rows_in, held, waiting)


class SlidingMetrics:
    """Samples of one query over a sliding window; a new epoch resets it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[Sample] = deque()
        self._has_first_sample = True  # whether the first sample of the epoch is still stored

    def add(self, new: Sample) -> None:
        """Add a sample; the newest one older than the window is retained as baseline of differences."""
        samples = self._samples
        if samples and samples[-1].epoch != new.epoch:
            samples.clear()
            self._has_first_sample = True
        samples.append(new)
        while len(samples) > 2 and samples[1].at <= new.at - self._seconds:
            samples.popleft()
            self._has_first_sample = False

    @property
    def empty(self) -> bool:
        """Whether there are no samples."""
        return not self._samples

    @property
    def _spans(self) -> bool:
        return len(self._samples) > 1

    @property
    def latency(self) -> Latency:
        """Latency of the answers within the window; at first, since the query started."""
        if not self._samples:
            return Latency()
        last = self._samples[-1].latency
        return last if self._has_first_sample else last.since(self._samples[0].latency)

    @property
    def silent_ms(self) -> float | None:
        """Minimum time in ms that rows have waited without any answer, or None if there are answers."""
        if not self._spans or not all(one.waiting for one in self._samples):
            return None
        first, last = self._samples[0], self._samples[-1]
        return 1000 * (last.at - first.at) if last.latency.count == first.latency.count else None

    @property
    def rows_per_s(self) -> float | None:
        """Rows read per second, or None with fewer than two samples."""
        if not self._spans:
            return None
        first, last = self._samples[0], self._samples[-1]
        return (last.rows_in - first.rows_in) / (last.at - first.at) if last.at > first.at else None

    @property
    def held(self) -> int | None:
        """Maximum of the bytes held over all samples, or None without samples."""
        return max((one.held for one in self._samples), default=None)

    @property
    def waiting(self) -> bool:
        """Whether there are unread rows now."""
        return bool(self._samples) and self._samples[-1].waiting
