"""Sliding load: activity of classes and streams over the last seconds, derived from cumulative metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from mavstream_server.core.metrics import ClassMetrics, EngineMetrics, Latency

WINDOW_S = 10.0
"""Length of the sliding window, in seconds: long enough for meaningful means of classes with little
traffic, short enough to follow changes of load.
"""
_NOTHING = ClassMetrics(0, 0, 0, 0, 0, 0, Latency())


class Arrivals(NamedTuple):
    """Arrivals of a stream: totals since the server started, or rates per second."""

    rows: float
    frames: float


class LoadSample(NamedTuple):
    """A sample of the server's cumulative metrics."""

    at: float
    """Time of the sample, in seconds."""
    engine: EngineMetrics
    classes: Mapping[str, ClassMetrics]
    streams: Mapping[str, Arrivals]
    """Also the results of queries that others read, by the names of these."""


class SlidingLoad:
    """Load samples over a sliding window; a new engine process resets it."""

    def __init__(self, seconds: float = WINDOW_S) -> None:
        self.length = seconds
        self._samples: deque[LoadSample] = deque()

    def add(self, new: LoadSample) -> None:
        """Add a sample; the newest one older than the window is retained as baseline of differences."""
        samples = self._samples
        if samples and samples[-1].engine.pid != new.engine.pid:
            samples.clear()
        samples.append(new)
        while len(samples) > 2 and samples[1].at <= new.at - self.length:
            samples.popleft()

    def forget(self) -> None:
        """Discard all samples: they do not apply to a new engine process."""
        self._samples.clear()

    @property
    def seconds(self) -> float:
        """Time that the samples span, in seconds; 0 with fewer than two samples."""
        return self._samples[-1].at - self._samples[0].at if self._samples else 0.0

    @property
    def policy(self) -> str | None:
        """The current scheduling policy, or None if there are no samples."""
        return self._samples[-1].engine.policy if self._samples else None

    @property
    def classes(self) -> Mapping[str, ClassMetrics]:
        """The latest metrics of all classes that have queries."""
        return self._samples[-1].classes if self._samples else {}

    def busy(self, class_name: str) -> float:
        """Return the share of the engine's time that a class used, from 0 to 1."""
        if not self.seconds:
            return 0.0
        first, last = (one.engine.class_busy_ns.get(class_name, 0) for one in self._ends)
        return (last - first) / 1e9 / self.seconds

    @property
    def utilisation(self) -> float:
        """The share of the time that the engine spent in slices, from 0 to 1."""
        if not self.seconds:
            return 0.0
        first, last = self._ends
        return (last.engine.busy_ns - first.engine.busy_ns) / 1e9 / self.seconds

    @property
    def turns(self) -> float:
        """Slices per second."""
        if not self.seconds:
            return 0.0
        first, last = self._ends
        return (last.engine.slices - first.engine.slices) / self.seconds

    def arrivals(self, stream: str) -> Arrivals | None:
        """Return the rows and frames per second of a stream or query, or None if not known yet."""
        seen = [(one.at, one.streams[stream]) for one in self._samples if stream in one.streams]
        if len(seen) < 2:
            return None
        (begin, first), (end, last) = seen[0], seen[-1]
        # A stream that was removed and created again counts from zero.
        if end <= begin or last.rows < first.rows:
            return None
        return Arrivals(
            (last.rows - first.rows) / (end - begin), (last.frames - first.frames) / (end - begin)
        )

    def latency(self, class_name: str) -> Latency:
        """Return the latency of a class's answers within the window.

        A class sums over its current queries: steps at which queries left, so that the sums fell, are
        skipped.
        """
        steps = pairwise(self._samples)
        return Latency.merged(
            _between(*(one.classes.get(class_name, _NOTHING) for one in step)) for step in steps
        )

    def waited(self, class_name: str) -> bool:
        """Return whether the class had waiting rows in every sample."""
        found = (one.classes.get(class_name, _NOTHING) for one in self._samples)
        return bool(self.seconds) and all(one.backlog_bytes + one.queued_bytes > 0 for one in found)

    @property
    def _ends(self) -> tuple[LoadSample, LoadSample]:
        return self._samples[0], self._samples[-1]


def _between(first: ClassMetrics, last: ClassMetrics) -> Latency:
    before, after = first.latency, last.latency
    if last.queries < first.queries or after.count <= before.count or after.total < before.total:
        return Latency()
    more = {bucket: count - before.buckets.get(bucket, 0) for bucket, count in after.buckets.items()}
    counts = {bucket: count for bucket, count in more.items() if count > 0}
    return Latency(after.count - before.count, after.total - before.total, after.maximum, counts)
