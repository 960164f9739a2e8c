"""Faults of sensors: values that are missing, rows that come twice, silent hours, wrong clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.rooms import DAY
from mavstream_spark.homes.sensors import HomeDay, Readings

_MISSING = 0.004
_TWICE = 0.003
_SILENT = 0.02
"""How often a stream of a home has an hour or two without a row, per day."""


@dataclass(frozen=True, slots=True)
class SentRows:
    """What arrives from a home: as `Readings`, with the rows whose value is missing."""

    readings: Readings
    missing: NDArray[np.bool_]


def sent(readings: Readings, stream: str, today: HomeDay) -> SentRows:
    """Return what becomes of readings on their way."""
    random = today.draws(f"faults {stream}")
    kept = _heard(readings, random)
    times = readings.times[kept]
    if stream == "motion":
        times = times + today.home.skew
    again = np.flatnonzero(random.random(len(kept)) < _TWICE)
    order = np.concatenate((np.arange(len(kept)), again))
    missing = random.random(len(kept)) < _MISSING
    rows = Readings(times[order], readings.places[kept][order], readings.values[kept][order])
    return SentRows(rows, missing[order])


def _heard(readings: Readings, random: np.random.Generator) -> NDArray[np.int64]:
    if random.random() >= _SILENT:
        return np.arange(len(readings.times))
    begin = random.uniform(0, DAY - 7200)
    end = begin + random.uniform(1800, 7200)
    return np.flatnonzero((readings.times < begin) | (readings.times >= end))
