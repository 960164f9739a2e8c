"""Faults of sensors: missing values, duplicate rows, silent hours, wrong clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.rooms import DAY
from mavstream_spark.homes.sensors import HomeDay, Readings

_MISSING = 0.004
_DUPLICATE = 0.003
_SILENT = 0.02
"""Probability that a stream of a home-day is silent for half an hour to two hours."""


@dataclass(frozen=True, slots=True)
class SentRows:
    """Readings as they arrive from a home, and which of them have no value."""

    readings: Readings
    missing: NDArray[np.bool_]


def sent(readings: Readings, stream: str, today: HomeDay) -> SentRows:
    """Return readings with the faults of their sensors."""
    random = today.draws(f"faults {stream}")
    kept = _not_silent(readings, random)
    times = readings.times[kept]
    if stream == "motion":
        times = times + today.home.skew
    again = np.flatnonzero(random.random(len(kept)) < _DUPLICATE)
    order = np.concatenate((np.arange(len(kept)), again))
    missing = random.random(len(kept)) < _MISSING
    rows = Readings(times[order], readings.places[kept][order], readings.values[kept][order])
    return SentRows(rows, missing[order])


def _not_silent(readings: Readings, random: np.random.Generator) -> NDArray[np.int64]:
    if random.random() >= _SILENT:
        return np.arange(len(readings.times))
    begin = random.uniform(0, DAY - 7200)
    end = begin + random.uniform(1800, 7200)
    return np.flatnonzero((readings.times < begin) | (readings.times >= end))
