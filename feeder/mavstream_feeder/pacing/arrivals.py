"""Arrival times of a stream: a Poisson process with a rate that may change over time, or recorded times."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mavstream_feeder.pacing.rates import Rate, Recorded

Times: TypeAlias = NDArray[np.float64]
"""Seconds on the feeder's clock, in ascending order."""

# Times are made in blocks, since a call of numpy costs the same for many. Their length is fixed: sums of
# floats depend on where they are cut, and the same seed must give the same times.
_BLOCK = 1024


class Arrivals(Protocol):
    """The due times of a stream's next rows."""

    def head(self) -> float:
        """Return the next due time; infinity at the end."""

    def take(self, now: float, most: int) -> Times:
        """Remove and return the due times up to and including `now`, at most `most`."""

    def upcoming(self, until: float, most: int) -> Times:
        """Return the next due times up to and including `until`, at most `most`; none is removed."""

    def advance(self, count: int) -> None:
        """Remove the next `count` due times, which are known from `upcoming`."""


class _Blocks(ABC):
    """Due times that are made in blocks."""

    def __init__(self) -> None:
        self._ready: Times = np.empty(0)
        # The same as a list, made on demand: single times are found in it ten times as fast.
        self._list: list[float] | None = None
        self._next = 0

    def head(self) -> float:
        """Return the next due time; infinity at the end."""
        if self._next == len(self._ready):
            self._extend()
        listed = self._listed()
        return listed[self._next] if listed else math.inf

    def take(self, now: float, most: int) -> Times:
        """Remove and return the due times up to and including `now`, at most `most`."""
        taken: list[Times] = []
        while most > 0 and (head := self.head()) <= now and head < math.inf:
            begin, listed = self._next, self._listed()
            stop = min(bisect_right(listed, now, begin), begin + most)
            taken.append(self._ready[begin:stop])
            most -= stop - begin
            self._next = stop
            if stop < len(listed):
                break
        if len(taken) == 1:
            return taken[0]
        return np.concatenate(taken) if taken else np.empty(0)

    def upcoming(self, until: float, most: int) -> Times:
        """Return the next due times up to and including `until`, at most `most`; none is removed."""
        while len(self._ready) - self._next < most and (not len(self._ready) or self._ready[-1] <= until):
            if not self._extend():
                break
        known = self._ready[self._next : self._next + most]
        return known[: known.searchsorted(until, "right")]

    def advance(self, count: int) -> None:
        """Remove the next `count` due times, which are known from `upcoming`."""
        self._next += count

    def _extend(self) -> bool:
        """Make another block of due times; whether there was one."""
        more = self._more()
        self._ready = np.concatenate((self._ready[self._next :], more))
        self._list, self._next = None, 0
        return len(more) > 0

    def _listed(self) -> list[float]:
        if self._list is None:
            self._list = self._ready.tolist()
        return self._list

    @abstractmethod
    def _more(self) -> Times:
        """Return the next block of due times; empty at the end."""


class PoissonArrivals(_Blocks):
    """A Poisson process with a piecewise constant rate, by inversion: exact also across changes of the rate.

    Gaps are drawn with rate one; the arrival time is when the integral of the rate reaches their running sum.
    The draws depend only on the seed and the stream's name, not on other streams.
    """

    def __init__(self, rate: Rate, start: float, seed: int, name: str) -> None:
        super().__init__()
        self._random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        lengths = [piece.seconds for piece in rate.pieces]
        rates = [piece.per_second for piece in rate.pieces]
        bounded = [length for length in lengths if not math.isinf(length)]
        # Knots of the rate's integral; beyond the last one the rate is `_beyond`, which may be 0.
        self._knots = start + np.concatenate(([0.0], np.cumsum(bounded)))
        self._integral = np.concatenate(([0.0], np.cumsum(np.multiply(bounded, rates[: len(bounded)]))))
        self._beyond = rates[-1] if len(bounded) < len(lengths) else 0.0
        self._drawn = 0.0
        self._over = False

    def _more(self) -> Times:
        if self._over:
            return np.empty(0)
        sums = np.cumsum(np.concatenate(([self._drawn], self._random.standard_exponential(_BLOCK))))[1:]
        self._drawn = float(sums[-1])
        end = self._integral[-1]
        inside = sums[sums <= end] if self._drawn > end else sums
        times: Times = np.interp(inside, self._integral, self._knots)
        if self._beyond:
            behind = sums[len(inside) :]
            return np.concatenate((times, self._knots[-1] + (behind - end) / self._beyond))
        self._over = bool(self._drawn > end)
        return times


class RecordedArrivals(_Blocks):
    """Recorded arrival times, shifted to the start of the stream.

    A row that was recorded out of order falls due with the one before it, since rows keep their order.
    """

    def __init__(self, rate: Recorded, start: float, ahead: Callable[[], Times | None]) -> None:
        super().__init__()
        self._rate = rate
        self._start = start
        self._ahead = ahead
        self._last = -math.inf

    def _more(self) -> Times:
        recorded = self._ahead()
        if recorded is None:
            return np.empty(0)
        times = self._start + (recorded - (self._rate.origin or 0.0)) / self._rate.speed
        times = np.maximum.accumulate(np.maximum(times, self._last))
        self._last = float(times[-1])
        return times


class FlatOut:
    """Rows that are always due: as many as are taken."""

    def head(self) -> float:
        """Return minus infinity."""
        return -math.inf

    def take(self, now: float, most: int) -> Times:
        """Return `most` due times, which are now."""
        return np.full(most, now)

    def upcoming(self, until: float, most: int) -> Times:
        """Return nothing: rows are due when they are taken."""
        return np.empty(0)

    def advance(self, count: int) -> None:
        """Do nothing: there is no end of due times."""


def arrivals_of(rate: Rate, start: float, seed: int, name: str) -> Arrivals:
    """Return the arrivals of a stream that starts at `start`."""
    return FlatOut() if rate.flat_out else PoissonArrivals(rate, start, seed, name)
