"""Latency: how long after its arrival a result was there, as a histogram that needs little room."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.column import Ints

_PER_OCTAVE = 8  # buckets per factor of two: a percentile is right within 9 %
_BUCKETS = 64 * _PER_OCTAVE


class LatencyHistogram:
    """Counts latencies in buckets of growing width. Times are nanoseconds."""

    __slots__ = ("buckets", "count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.maximum = 0
        self.buckets: Ints = np.zeros(_BUCKETS, dtype=np.int64)

    def record(self, arrivals: Ints, now: int) -> None:
        """Count results that became possible at `arrivals` and were there at `now`."""
        size = len(arrivals)
        first = int(arrivals[0])
        if first == int(arrivals[-1]) and (size == 1 or (arrivals == first).all()):
            latency = max(now - first, 1)
            self._add_one(latency, size)
            return
        latencies = np.maximum(now - arrivals, 1)
        self.count += size
        self.total += int(latencies.sum())
        self.maximum = max(self.maximum, int(latencies.max()))
        places = (np.log2(latencies) * _PER_OCTAVE).astype(np.int64)
        np.add.at(self.buckets, np.minimum(places, _BUCKETS - 1), 1)

    def _add_one(self, latency: int, size: int) -> None:
        self.count += size
        self.total += latency * size
        self.maximum = max(self.maximum, latency)
        self.buckets[min(int(np.log2(latency) * _PER_OCTAVE), _BUCKETS - 1)] += size

    @property
    def mean(self) -> float | None:
        """The mean, or None without results."""
        return self.total / self.count if self.count else None

    def percentile(self, percent: float) -> float | None:
        """Return a latency that this share of the results did not exceed, or None without results."""
        if not self.count:
            return None
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        place = int(np.searchsorted(np.cumsum(self.buckets), rank))
        return min(float(2.0 ** ((place + 1) / _PER_OCTAVE)), float(self.maximum))
