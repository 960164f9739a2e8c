"""Latency histogram: time from the arrival of rows to their results, in a fixed number of buckets."""

from __future__ import annotations

from collections import Counter
from math import log2

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

PER_OCTAVE = 8  # buckets per factor of two: percentiles are accurate to 9 %
_BUCKETS = 64 * PER_OCTAVE
_FEW = 32  # results: up to this number, counting one by one is faster


class LatencyHistogram:
    """Counts latencies in buckets of exponentially growing width. Times are in nanoseconds."""

    __slots__ = ("buckets", "count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.maximum = 0
        self.buckets: Ints = np.zeros(_BUCKETS, dtype=np.int64)

    def record(self, arrivals: Ints, now: int) -> None:
        """Count results that became possible at `arrivals` and were available at `now`."""
        size = len(arrivals)
        if size <= _FEW:
            self._record_few(arrivals.tolist(), now)
            return
        latencies = now - arrivals
        shortest, longest = max(int(latencies.min()), 1), max(int(latencies.max()), 1)
        self.count += size
        self.total += int(latencies.sum())
        self.maximum = max(self.maximum, longest)
        low, high = int(log2(shortest) * PER_OCTAVE), int(log2(longest) * PER_OCTAVE)
        if low == high:  # rows of a batch mostly arrived together
            self.buckets[low] += size
        else:
            places = (np.log2(np.maximum(latencies, 1)) * PER_OCTAVE).astype(np.int64)
            np.add.at(self.buckets, places, 1)

    def _record_few(self, arrivals: list[int], now: int) -> None:
        """Count results one by one, which is faster than numpy calls for few of them."""
        self.count += len(arrivals)
        for arrival, times in Counter(arrivals).items() if len(arrivals) > 1 else ((arrivals[0], 1),):
            latency = now - arrival
            self.total += latency * times
            self.maximum = max(self.maximum, latency)
            self.buckets[int(log2(max(latency, 1)) * PER_OCTAVE)] += times

    def merge(self, other: LatencyHistogram) -> None:
        """Add the counts of another histogram."""
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)
        self.buckets += other.buckets

    @property
    def mean(self) -> float | None:
        """The mean latency in nanoseconds, or None without results."""
        return self.total / self.count if self.count else None

    def percentile(self, percent: float) -> float | None:
        """Return a percentile of the latency in nanoseconds, or None without results."""
        if not self.count:
            return None
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self.buckets), rank))
        return min(float(2.0 ** ((bucket + 1) / PER_OCTAVE)), float(self.maximum))
