"""Measured values over the last minutes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil

KEPT_S = 300.0
"""How far back charts reach, in seconds."""

_PER_OCTAVE = 8


@dataclass(slots=True)
class History:
    """Values of one measurement with their times, in seconds of a monotonic clock."""

    points: deque[tuple[float, float | None]] = field(default_factory=deque)

    def add(self, at: float, value: float | None) -> None:
        """Add a value and forget those that are too old."""
        self.points.append((at, value))
        while self.points[0][0] < at - KEPT_S:
            self.points.popleft()

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self.points[-1][1] if self.points else None


@dataclass(slots=True)
class Rate:
    """A rate per second from a counter that only grows; it starts anew when the counter does."""

    history: History = field(default_factory=History)
    _before: tuple[float, float] | None = None

    def count(self, at: float, total: float) -> None:
        """Take the value of the counter at a time."""
        if self._before is not None:
            passed, more = at - self._before[0], total - self._before[1]
            self.history.add(at, more / passed if passed > 0 and more >= 0 else None)
        self._before = (at, total)

    @property
    def last(self) -> float | None:
        """The newest rate."""
        return self.history.last


class RecentLatency:
    """Latency percentiles of the last seconds, from histograms that only grow."""

    def __init__(self, window: float = 10.0) -> None:
        self._window = window
        self._states: deque[tuple[float, dict[int, int]]] = deque()
        self.percentiles = {50: History(), 95: History(), 99: History()}

    def count(self, at: float, buckets: dict[int, int]) -> None:
        """Take the histogram at a time: the number of answers by bucket."""
        if self._states and sum(buckets.values()) < sum(self._states[-1][1].values()):
            self._states.clear()
        self._states.append((at, buckets))
        while len(self._states) > 2 and self._states[1][0] <= at - self._window:
            self._states.popleft()
        before = self._states[0][1] if len(self._states) > 1 else {}
        more = {bucket: count - before.get(bucket, 0) for bucket, count in buckets.items()}
        for percent, history in self.percentiles.items():
            history.add(at, percentile(more, percent))


def percentile(buckets: dict[int, int], percent: float) -> float | None:
    """Return a percentile in milliseconds; bucket `b` ends at 2 ** ((b + 1) / 8) ns."""
    total, seen = sum(buckets.values()), 0
    if total <= 0:
        return None
    rank = max(1, ceil(total * percent / 100))
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            return float(2.0 ** ((bucket + 1) / _PER_OCTAVE)) / 1e6
    return None
