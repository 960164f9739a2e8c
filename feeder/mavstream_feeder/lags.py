"""How late tuples were sent: a histogram of fixed size with buckets that grow by 5 %."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_GROWTH = math.log(1.05)
_BUCKETS = 512  # From a microsecond to a day.


class Lags:
    """Times from due to sent, in seconds; quantiles are right within 5 %."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, dtype=np.int64)
        self.count = 0

    def record(self, lags: NDArray[np.float64]) -> None:
        """Count the lags of a frame's tuples; negative ones are none."""
        scaled = np.log(np.maximum(lags * 1e6, 1.0)) / _GROWTH
        buckets = np.minimum(np.ceil(scaled).astype(np.int64), _BUCKETS - 1)
        self._counts += np.bincount(buckets, minlength=_BUCKETS)
        self.count += len(lags)

    def add(self, other: Lags) -> None:
        """Count the lags of another histogram too."""
        self._counts += other._counts
        self.count += other.count

    def quantile(self, share: float) -> float | None:
        """Return the lag in seconds that this share of the tuples did not exceed; None without tuples."""
        if not self.count:
            return None
        reached = np.cumsum(self._counts) >= share * self.count
        return math.exp(int(np.argmax(reached)) * _GROWTH) / 1e6
