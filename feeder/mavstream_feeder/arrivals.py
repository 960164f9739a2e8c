"""Arrival times of one stream: a Poisson process whose rate may change over time."""

from __future__ import annotations

import math
import zlib
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mavstream_feeder.rates import Rate

Times: TypeAlias = NDArray[np.float64]
"""Seconds on the feeder's clock, never falling."""

# Blocks keep numpy's cost per call away from the single tuple. Their length is fixed, since sums of floats
# depend on where they are cut and the same seed must give the same times.
_BLOCK = 1024


class Arrivals(Protocol):
    """When the next tuples of a stream fall due."""

    def head(self) -> float:
        """Return the next due time, infinity when there are no more."""

    def take(self, now: float, most: int) -> Times:
        """Remove and return the due times up to and including `now`, at most so many."""


class PoissonArrivals:
    """Exponential gaps at a rate of pieces, by inversion: exact also across changes of the rate.

    Gaps are drawn with rate one; the time at which the integral of the rate reaches their running sum is the
    arrival time. The draws depend on the seed and the stream's name alone, not on other streams.
    """

    def __init__(self, rate: Rate, start: float, seed: int, name: str) -> None:
        self._random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        lengths = [piece.seconds for piece in rate.pieces]
        rates = [piece.per_second for piece in rate.pieces]
        bounded = [length for length in lengths if not math.isinf(length)]
        # Knots of the rate's integral; beyond the last one the rate is `_beyond`, or nothing comes.
        self._knots = start + np.concatenate(([0.0], np.cumsum(bounded)))
        self._integral = np.concatenate(([0.0], np.cumsum(np.multiply(bounded, rates[: len(bounded)]))))
        self._beyond = rates[-1] if len(bounded) < len(lengths) else 0.0
        self._drawn = 0.0
        self._ready: Times = np.empty(0)
        self._next = 0
        self._over = False

    def head(self) -> float:
        """Return the next due time, infinity when there are no more."""
        if self._next == len(self._ready):
            self._draw()
        return math.inf if self._next == len(self._ready) else float(self._ready[self._next])

    def take(self, now: float, most: int) -> Times:
        """Remove and return the due times up to and including `now`, at most so many."""
        taken: list[Times] = []
        while most > 0 and (head := self.head()) <= now and head < math.inf:
            stop = int(np.searchsorted(self._ready, now, side="right"))
            stop = min(stop, self._next + most)
            taken.append(self._ready[self._next : stop])
            most -= stop - self._next
            self._next = stop
        return np.concatenate(taken) if taken else np.empty(0)

    def _draw(self) -> None:
        if self._over:
            return
        sums = np.cumsum(np.concatenate(([self._drawn], self._random.standard_exponential(_BLOCK))))[1:]
        self._drawn = float(sums[-1])
        end = self._integral[-1]
        inside = sums[sums <= end] if self._drawn > end else sums
        times = np.interp(inside, self._integral, self._knots)
        if self._beyond:
            behind = sums[len(inside) :]
            times = np.concatenate((times, self._knots[-1] + (behind - end) / self._beyond))
        else:
            self._over = self._drawn > end
        self._ready, self._next = times, 0


class FlatOut:
    """Always due, since ever: as many tuples as are asked for."""

    def head(self) -> float:
        """Return minus infinity."""
        return -math.inf

    def take(self, now: float, most: int) -> Times:
        """Return `most` tuples that are due now."""
        return np.full(most, now)


def arrivals_of(rate: Rate, start: float, seed: int, name: str) -> Arrivals:
    """Return the arrivals of a stream that joins at `start`."""
    return FlatOut() if rate.flat_out else PoissonArrivals(rate, start, seed, name)
