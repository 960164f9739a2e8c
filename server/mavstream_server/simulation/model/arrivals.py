"""Arrival times of the tuples of streams, in nanoseconds, generated in blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

from mavstream_server.simulation.scenario import SECOND, ArrivalKind, Burst, StreamSpec

NEVER = 1 << 62
"""A time after the end of any run."""
_BLOCK = 4096
_FIRST_BLOCK = 128  # with hundreds of streams, most have few tuples
_FEW = (4, 32)
_AHEAD = 4.0  # seconds of bursts that are generated at a time

Floats = NDArray[np.float64]


class ArrivalTimes:
    """The arrival times of one stream, read in order; `next` is the first that has not been read."""

    __slots__ = ("_at", "_blocks", "_times", "name", "next", "read", "size")

    def __init__(self, spec: StreamSpec, seed: np.random.SeedSequence) -> None:
        self.name = spec.name
        self.size = spec.size
        self._blocks = arrival_blocks(spec, np.random.default_rng(seed))
        self._times: list[int] = []
        self._at = 0
        self.read = 0
        """Tuples read so far."""
        self.next = NEVER
        self._refill()

    def take(self, until: int, most: int) -> list[int]:
        """Read the tuples that have arrived up to a time, at most `most`."""
        at, times = self._at, self._times
        end = at + 1
        if end >= len(times) or times[end] <= until or self.next > until:  # usually it is just one
            end = self._arrived_until(until)
            at, times = self._at, self._times
        if end - at > most:
            end = at + most
        batch = times[at:end]
        self._at = end
        self.read += end - at
        self.next = times[end] if end < len(times) else self._next_block()
        return batch

    def waiting(self, until: int) -> int:
        """Return how many tuples have arrived up to a time and have not been read."""
        return self._arrived_until(until) - self._at

    def at_least(self, count: int, until: int) -> bool:
        """Return whether at least `count` tuples have arrived up to a time and have not been read."""
        while self._at + count > len(self._times):
            if not self._refill():
                return False
        return self._times[self._at + count - 1] <= until

    def _arrived_until(self, until: int) -> int:
        """Return the index after the last tuple that has arrived; usually there are few."""
        times, at = self._times, self._at
        for few in _FEW:
            near = at + few
            if near < len(times) and times[near] > until:
                return bisect_right(times, until, at, near)
        end = bisect_right(times, until, at)
        while end == len(self._times) and self._refill():
            end = bisect_right(self._times, until, self._at)
        return end

    def _next_block(self) -> int:
        return self._times[self._at] if self._refill() else NEVER

    def _refill(self) -> bool:
        block = next(self._blocks, None)
        if block is None:
            return False
        self._times = self._times[self._at :] + block
        self._at = 0
        self.next = self._times[0]
        return True


def merge_arrivals(streams: Sequence[ArrivalTimes]) -> Iterator[tuple[int, int]]:
    """Return (time, index of the stream) of all arrivals in order of time.

    They are sorted one stretch of time after the other, which costs a third of a heap over the streams.
    """
    stretch = SECOND // 1000
    while (first := min((stream.next for stream in streams), default=NEVER)) < NEVER:
        times: list[int] = []
        indices: list[int] = []
        for index, stream in enumerate(streams):
            batch = stream.take(first + stretch, NEVER)
            times += batch
            indices += repeat(index, len(batch))
        order = np.argsort(times, kind="stable").tolist()
        yield from [(times[at], indices[at]) for at in order]
        if len(times) < _BLOCK:
            stretch *= 2
        elif len(times) > 4 * _BLOCK:
            stretch //= 2


def arrival_blocks(spec: StreamSpec, random: np.random.Generator) -> Iterator[list[int]]:
    """Return the arrival times of a stream in blocks, none of them empty."""
    if spec.kind is ArrivalKind.RECORDED:
        offsets = iter(spec.offsets[: spec.tuples])
        while block := list(islice(offsets, _BLOCK)):
            yield [int((spec.begin_s + offset) * SECOND) for offset in block]
        return
    profile, mass, left, size = _Profile(spec, random), 0.0, spec.tuples, _FIRST_BLOCK
    while left is None or left > 0:
        count = size if left is None else min(left, size)
        size = min(2 * size, _BLOCK)
        steps = np.ones(count) if spec.kind is ArrivalKind.FIXED else random.exponential(size=count)
        masses = mass + np.cumsum(steps)
        mass = float(masses[-1])
        times = profile.times(masses)
        if not times.size:
            return
        yield (times * SECOND).astype(np.int64).tolist()
        left = None if left is None else left - count


class _Profile:
    """The rate of a stream over time, as the cumulative expected number of tuples.

    Its inverse turns arrivals of rate 1 into arrivals of that rate (time change).
    """

    def __init__(self, spec: StreamSpec, random: np.random.Generator) -> None:
        self._random = random
        self._burst: Burst | None = spec.burst if spec.kind is ArrivalKind.BURSTY else None
        self._high = spec.rate
        self._seconds, self._masses = [spec.begin_s], [0.0]
        self._last = spec.rate
        if self._burst is None:
            for second, rate in spec.rates:
                self._add(second - self._seconds[-1], self._last)
                self._last = rate

    def times(self, masses: Floats) -> Floats:
        """Return the times at which these numbers of tuples are expected; without those that never come."""
        if self._burst is None and len(self._seconds) == 1 and self._last > 0:
            return self._seconds[0] + masses / self._last
        while self._burst is not None and self._masses[-1] < masses[-1]:
            self._extend(self._burst)
        known = np.interp(masses, self._masses, self._seconds)
        if self._burst is not None or masses[-1] <= self._masses[-1]:
            return known
        if self._last <= 0:
            return known[masses <= self._masses[-1]]
        beyond = self._seconds[-1] + (masses - self._masses[-1]) / self._last
        return np.where(masses > self._masses[-1], beyond, known)

    def _extend(self, burst: Burst) -> None:
        until = self._seconds[-1] + _AHEAD
        while self._seconds[-1] < until:
            for length, rate in ((burst.high_s, self._high), (burst.low_s, burst.low_rate)):
                self._add(self._random.exponential(length) if burst.random else length, rate)

    def _add(self, seconds: float, rate: float) -> None:
        if seconds > 0:
            self._seconds.append(self._seconds[-1] + seconds)
            self._masses.append(self._masses[-1] + seconds * rate)
