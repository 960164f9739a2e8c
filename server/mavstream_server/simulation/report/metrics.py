"""Metrics: response times of classes, inversion and starvation ratios, throughput.

Definitions are those of the dissertation (2.3, 6.2.3), the MavStream thesis (6.1) and the AMoS paper (3.2,
4). Classes are in order of descending priority; times are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MILLISECOND = 1e6
LEVELS = (10, 25, 50, 75, 90, 95, 99)
"""Percentiles that are computed for every class."""

Numbers = NDArray[np.float64]


class ResponseMetrics(NamedTuple):
    """Response times of one class in milliseconds; None if there was no answer."""

    priority: int
    answers: int
    mean_ms: float | None
    percentiles: Mapping[int, float]

    def at(self, level: int | None) -> float | None:
        """Return a percentile, or the mean for None."""
        return self.mean_ms if level is None else self.percentiles.get(level)


def response_metrics(priority: int, responses: NDArray[np.int64]) -> ResponseMetrics:
    """Summarise the response times of a class."""
    if not responses.size:
        return ResponseMetrics(priority, 0, None, {})
    levels = np.percentile(responses, LEVELS) / MILLISECOND
    found = dict(zip(LEVELS, levels.tolist(), strict=True))
    return ResponseMetrics(priority, responses.size, float(responses.mean()) / MILLISECOND, found)


def weighted_mean(classes: Sequence[tuple[int, float | None]]) -> float | None:
    """Return the mean over classes of (priority, response time), weighted by priority.

    The published Wavg of Scale_CQs follows from the published class means by this formula.
    """
    known = [(priority, response) for priority, response in classes if response is not None]
    weight = sum(priority for priority, _ in known)
    return sum(priority * response for priority, response in known) / weight if weight else None


def inversion_ratio(classes: Sequence[tuple[int, float | None]]) -> float:
    """Return the sum over neighbouring classes of Pr_i / Pr_i+1 x |min(0, 1 - RT_i / RT_i+1)|.

    Classes of the same priority are not compared with each other.
    """
    known = sorted(
        ((priority, response) for priority, response in classes if response is not None),
        key=lambda one: -one[0],
    )
    total = 0.0
    for (above, slow), (below, fast) in pairwise(known):
        if above > below and slow > fast:
            total += above / below * (slow / fast - 1 if fast > 0 else np.inf)
    return total


def starvation_ratio(classes: Sequence[tuple[int, float | None]]) -> float | None:
    """Return the response time of the least important class divided by that of the most important one."""
    known = [(priority, response) for priority, response in classes if response is not None]
    if not known:
        return None
    highest, lowest = max(known, key=lambda one: one[0])[1], min(known, key=lambda one: one[0])[1]
    return lowest / highest if highest else None


def windows(departures: NDArray[np.int64], end: int, length: int) -> tuple[NDArray[np.int64], int]:
    """Return the window of each answer, and the number of windows."""
    return departures // length, max(-(-end // length), 1)


def mean_by_window(
    departures: NDArray[np.int64], values: NDArray[np.int64], end: int, length: int
) -> Numbers:
    """Return the mean of values in each window of time; NaN for windows without values."""
    index, count = windows(departures, end, length)
    index = np.minimum(index, count - 1)
    numbers = np.bincount(index, minlength=count)
    sums = np.bincount(index, weights=values, minlength=count)
    means: Numbers = np.full(count, np.nan)
    np.divide(sums, numbers, out=means, where=numbers > 0)
    return means


def throughput(departures: NDArray[np.int64], end: int, length: int) -> Numbers:
    """Return answers per second in each complete window of time."""
    index, _ = windows(departures, end, length)
    whole = end // length
    counts = np.bincount(index[index < whole], minlength=whole).astype(np.float64)
    return counts * (1e9 / length)
