"""Lags, the time from due to sent: a histogram per stream, of fixed size, with buckets that grow by 5 %."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_GROWTH = math.log(1.05)
_BUCKETS = 512  # From a microsecond to a day.
_BLOCK = 1024


class Lags:
    """Histograms of lags in seconds, by number of the stream; quantiles are exact to 5 %."""

    def __init__(self) -> None:
        self._streams = 0
        self._counts = np.zeros((0, _BUCKETS), dtype=np.int64)
        self._worst = np.zeros(0)
        # Rows of the next write, and rows that were sent and are not counted yet.
        self._leaving: list[tuple[NDArray[np.intp], NDArray[np.float64]]] = []
        self._left: list[tuple[NDArray[np.intp], NDArray[np.float64], float]] = []
        self._size = 0

    def add_stream(self) -> int:
        """Add a stream and return its number."""
        self._streams += 1
        return self._streams - 1

    def leaving(self, streams: NDArray[np.intp] | int, due: NDArray[np.float64]) -> None:
        """Note the due times of rows for the next `sent`; `streams` is one number, or one for each row."""
        numbers = np.full(len(due), streams) if isinstance(streams, int) else streams
        self._leaving.append((numbers, due))

    def sent(self, now: float) -> None:
        """Note that the rows of `leaving` were sent now."""
        # Frames are small and many, so they are counted in blocks.
        for numbers, due in self._leaving:
            self._left.append((numbers, due, now))
            self._size += len(due)
        self._leaving.clear()
        if self._size >= _BLOCK:
            self._fold()

    def worst(self, stream: int | None = None) -> float | None:
        """Return the longest lag in seconds, of one stream or of all; None without rows."""
        if not self._chosen(stream).any():
            return None
        return float(self._worst.max() if stream is None else self._worst[stream])

    def quantile(self, share: float, stream: int | None = None) -> float | None:
        """Return a quantile of the lag in seconds, of one stream or of all; None without rows."""
        reached = np.cumsum(self._chosen(stream))
        if not reached[-1]:
            return None
        return math.exp(int(np.argmax(reached >= share * reached[-1])) * _GROWTH) / 1e6

    def _chosen(self, stream: int | None) -> NDArray[np.int64]:
        self._grow()
        self._fold()
        chosen: NDArray[np.int64] = self._counts.sum(axis=0) if stream is None else self._counts[stream]
        return chosen

    def _fold(self) -> None:
        if not self._size:
            return
        self._grow()
        numbers = np.concatenate([numbers for numbers, _, _ in self._left])
        due = np.concatenate([due for _, due, _ in self._left])
        lags = np.repeat([sent for _, _, sent in self._left], [len(due) for _, due, _ in self._left]) - due
        self._left.clear()
        self._size = 0
        np.maximum.at(self._worst, numbers, lags)
        scaled = np.log(np.maximum(lags * 1e6, 1.0)) / _GROWTH
        buckets = np.minimum(np.ceil(scaled).astype(np.intp), _BUCKETS - 1)
        np.add.at(self._counts.reshape(-1), numbers * _BUCKETS + buckets, 1)

    def _grow(self) -> None:
        missing = self._streams - len(self._worst)
        if missing:
            self._counts = np.vstack((self._counts, np.zeros((missing, _BUCKETS), dtype=np.int64)))
            self._worst = np.append(self._worst, np.zeros(missing))
