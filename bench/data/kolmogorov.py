"""The Kolmogorov-Smirnov test of gaps against the exponential distribution, from stamps that are shared."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

_TERMS = 100
_TURN = 1.18  # where both series converge equally fast


def survival(value: float) -> float:
    """Return the probability that Kolmogorov's distribution exceeds a value (its limit for many samples)."""
    if value <= 0:
        return 1.0
    if value < _TURN:
        odd = np.arange(1, 2 * _TERMS, 2)
        below = math.sqrt(2 * math.pi) / value * np.exp(-((odd * math.pi) ** 2) / (8 * value**2)).sum()
        return float(1 - below)
    numbers = np.arange(1, _TERMS)
    return float(2 * ((-1.0) ** (numbers - 1) * np.exp(-2 * (numbers * value) ** 2)).sum())


def exponential_p(gaps: Times, rate: float) -> float:
    """Return the p-value of gaps for being exponential with a rate that is known, not estimated.

    Asymptotic, with Stephens' correction for the number of gaps; good from some dozens on.
    """
    count = len(gaps)
    expected = 1 - np.exp(-rate * np.sort(gaps))
    steps = np.arange(count + 1) / count
    distance = float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])))
    root = math.sqrt(count)
    return survival((root + 0.12 + 0.11 / root) * distance)


def spread(stamps: Times, moments: Times, longest: float, seed: int = 0) -> Times:
    """Return times for rows that share stamps: uniform over the time since the previous message, in order.

    Rows of a message have one stamp, though they fell due at different times since the previous message.
    `moments` are the stamps of all messages, sorted: a message with rows of other streams only means that
    this stream had none. Arrivals of a Poisson process are uniform over any interval, given their number. So
    if, and only if, the numbers of rows fit the lengths of the intervals, the resulting times are again a
    Poisson process. No row is moved back by more than `longest`: if rows were held together for a longer
    time, the test sees the cluster.
    """
    widths = np.diff(moments, prepend=moments[0] - longest)
    back = np.minimum(widths, longest)[np.searchsorted(moments, stamps)]
    return np.sort(stamps - np.random.default_rng(seed).random(len(stamps)) * back)
