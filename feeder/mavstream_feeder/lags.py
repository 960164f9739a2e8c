"""How late tuples were sent: a histogram of fixed size with buckets that grow by 5 %."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_GROWTH = math.log(1.05)
_BUCKETS = 512  # From a microsecond to a day.
_TOGETHER = 256


class Lags:
    """Times from due to sent, in seconds; quantiles are right within 5 %."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, dtype=np.int64)
        self.count = 0
        self._worst = 0.0
        self._due: list[NDArray[np.float64]] = []
        self._sent: list[float] = []

    def record(self, due: NDArray[np.float64], sent: float) -> None:
        """Count the tuples of a frame, by when they were due and when it was sent; nobody is early."""
        # Frames are small and many, so that they are counted together.
        self._due.append(due)
        self._sent.append(sent)
        self.count += len(due)
        if len(self._sent) >= _TOGETHER:
            self._fold()

    @property
    def worst(self) -> float | None:
        """The longest lag in seconds; None without tuples."""
        self._fold()
        return self._worst if self.count else None

    def _fold(self) -> None:
        if not self._sent:
            return
        sizes = [len(due) for due in self._due]
        lags = np.repeat(self._sent, sizes) - np.concatenate(self._due)
        self._due.clear()
        self._sent.clear()
        if not len(lags):
            return
        self._worst = max(self._worst, float(lags.max()))
        scaled = np.log(np.maximum(lags * 1e6, 1.0)) / _GROWTH
        buckets = np.minimum(np.ceil(scaled).astype(np.int64), _BUCKETS - 1)
        self._counts += np.bincount(buckets, minlength=_BUCKETS)

    def add(self, other: Lags) -> None:
        """Count the lags of another histogram too."""
        other._fold()
        self._counts += other._counts
        self._worst = max(self._worst, other._worst)
        self.count += other.count

    def quantile(self, share: float) -> float | None:
        """Return the lag in seconds that this share of the tuples did not exceed; None without tuples."""
        if not self.count:
            return None
        self._fold()
        reached = np.cumsum(self._counts) >= share * self.count
        return math.exp(int(np.argmax(reached)) * _GROWTH) / 1e6
