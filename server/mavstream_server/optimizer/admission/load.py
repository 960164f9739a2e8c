"""The load: what classes and streams did over the last seconds, from figures that count since the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from mavstream_server.core.metrics import ClassMetrics, EngineMetrics, Latency

WINDOW_S = 10.0
"""What is looked back on: long enough for means of quiet classes, short enough to follow a change."""
_NOTHING = ClassMetrics(0, 0, 0, 0, 0, 0, Latency())


class Arrivals(NamedTuple):
    """What came to a stream: since the server started, or per second."""

    rows: float
    frames: float


class LoadSample(NamedTuple):
    """The server at one time."""

    at: float
    """Seconds."""
    engine: EngineMetrics
    classes: Mapping[str, ClassMetrics]
    streams: Mapping[str, Arrivals]


class SlidingLoad:
    """Samples over a length of time; another engine process begins anew."""

    def __init__(self, seconds: float = WINDOW_S) -> None:
        self.length = seconds
        self._samples: deque[LoadSample] = deque()

    def add(self, new: LoadSample) -> None:
        """Take a sample; the last one ahead of the length stays, as what the others are counted from."""
        samples = self._samples
        if samples and samples[-1].engine.pid != new.engine.pid:
            samples.clear()
        samples.append(new)
        while len(samples) > 2 and samples[1].at <= new.at - self.length:
            samples.popleft()

    def forget(self) -> None:
        """There is no engine: what it did says nothing about the next one."""
        self._samples.clear()

    @property
    def seconds(self) -> float:
        """How long the samples span; 0 until there are two."""
        return self._samples[-1].at - self._samples[0].at if self._samples else 0.0

    @property
    def policy(self) -> str | None:
        """The policy that decides, or None if nothing is known."""
        return self._samples[-1].engine.policy if self._samples else None

    @property
    def classes(self) -> Mapping[str, ClassMetrics]:
        """The classes that have queries, as they are now."""
        return self._samples[-1].classes if self._samples else {}

    def stats(self, class_name: str) -> ClassMetrics:
        """Return a class as it is now."""
        return self.classes.get(class_name, _NOTHING)

    def busy(self, class_name: str) -> float:
        """Return the share of the time that a class got."""
        if not self.seconds:
            return 0.0
        first, last = (one.engine.class_busy_ns.get(class_name, 0) for one in self._ends)
        return (last - first) / 1e9 / self.seconds

    @property
    def utilisation(self) -> float:
        """The share of the time that was spent in slices."""
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
        """Return rows and frames per second of a stream, or None if that is not known yet."""
        seen = [(one.at, one.streams[stream]) for one in self._samples if stream in one.streams]
        if len(seen) < 2:
            return None
        (begin, first), (end, last) = seen[0], seen[-1]
        # A stream that was made anew counts from zero again.
        if end <= begin or last.rows < first.rows:
            return None
        return Arrivals(
            (last.rows - first.rows) / (end - begin), (last.frames - first.frames) / (end - begin)
        )

    def latency(self, class_name: str) -> Latency:
        """Return that of a class's answers within the length.

        A class counts the queries that it has: where some went, the sums fell, and that step is left out.
        """
        steps = pairwise(self._samples)
        return Latency.merged(
            _between(*(one.classes.get(class_name, _NOTHING) for one in step)) for step in steps
        )

    def waited(self, class_name: str) -> bool:
        """Return whether rows of a class waited at every look."""
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
