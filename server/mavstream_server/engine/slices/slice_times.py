"""Slice times: how long slices took, in a histogram of powers of two."""

from __future__ import annotations

_BUCKETS = 48


class SliceTimes:
    """The durations of slices: the longest, and percentiles within a factor of two."""

    __slots__ = ("_counts", "longest")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.longest = 0
        """The longest slice (ns)."""

    def add(self, elapsed: int) -> None:
        """Record a slice (ns)."""
        self._counts[elapsed.bit_length()] += 1
        if elapsed > self.longest:
            self.longest = elapsed

    def percentile(self, share: float) -> int:
        """Return a time (ns) that this share of the slices did not exceed, at most twice too long."""
        rank, seen = share * sum(self._counts), 0
        for bits, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return min(1 << bits, self.longest)
        return 0
