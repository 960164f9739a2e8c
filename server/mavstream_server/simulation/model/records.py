"""Records of the answers of a query: departure and response times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_PACK = 1 << 15  # answers that are kept as Python integers before they are packed

Times = NDArray[np.int64]


class Record:
    """Answers of one query. Each call adds a few numbers; times are computed later."""

    __slots__ = ("_packed", "arrivals", "calls")

    def __init__(self) -> None:
        self.arrivals: list[int] = []
        """Arrival times of the answers that are not packed yet."""
        self.calls: list[tuple[int, int, float]] = []
        """Calls that produced these answers: number of answers, start time, time per answer."""
        self._packed: list[tuple[Times, Times]] = []

    def add(self, arrivals: Sequence[int], begin: int, each: float) -> int:
        """Record answers of a call, one after the other; return the sum of their response times."""
        count = len(arrivals)
        self.arrivals += arrivals
        self.calls.append((count, begin, each))
        return count * begin + int(each * (count * (count + 1) // 2)) - sum(arrivals)

    def add_each(self, arrivals: Sequence[int], departures: Sequence[int]) -> int:
        """Record answers with their departure times; return the sum of their response times."""
        self.arrivals += arrivals
        self.calls += [(1, departure, 0.0) for departure in departures]
        return sum(departures) - sum(arrivals)

    def undo(self, count: int) -> None:
        """Remove the answers of the last call."""
        del self.arrivals[len(self.arrivals) - count :]  # `[-count:]` would be everything for a count of 0
        while count:
            count -= self.calls.pop()[0]

    def times(self) -> tuple[Times, Times]:
        """Return (departure times, response times) of all answers, in order of recording."""
        self.pack(least=1)
        if not self._packed:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        departures, responses = zip(*self._packed, strict=True)
        return np.concatenate(departures), np.concatenate(responses)

    def pack(self, least: int = _PACK) -> None:
        """Convert `least` or more answers into arrays, which take a fifth of the memory."""
        if len(self.arrivals) < least:
            return
        counts, begins, each = (np.array(column) for column in zip(*self.calls, strict=True))
        position = np.arange(1, len(self.arrivals) + 1) - np.repeat(np.cumsum(counts) - counts, counts)
        departures = np.repeat(begins, counts) + (position * np.repeat(each, counts)).astype(np.int64)
        self._packed.append((departures, departures - np.array(self.arrivals, np.int64)))
        self.arrivals, self.calls = [], []
