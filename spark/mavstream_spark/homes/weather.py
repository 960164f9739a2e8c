"""The weather outside: seasons, day and night, warm and cold spells, clouds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.draws import draws
from mavstream_spark.homes.rooms import DAY

Seconds = NDArray[np.float64]
Values = NDArray[np.float64]
_YEAR = 365.25
# The coldest day is about 20 January, the shortest 21 December; days count from 1970.
_COLDEST, _SHORTEST = 19.0, -11.0


def outside(seed: int, day: int, times: Seconds) -> Values:
    """Return the temperature at seconds since the day's midnight (negative: the day before)."""
    date = day + times / DAY
    season = 10.5 - 9.5 * np.cos((date - _COLDEST) / _YEAR * 2 * np.pi)
    hours = -4 * np.cos((times / DAY - 2 / 24) * 2 * np.pi)
    found: Values = season + hours + _spells(seed, day, times)
    return found


def _spells(seed: int, day: int, times: Seconds) -> Values:
    """Return warm and cold spells: a value at each midnight, linear in between."""
    midnights = np.arange(day - 1, day + 3)
    values = [_spell(seed, int(each)) for each in midnights]
    found: Values = np.interp(day + times / DAY, midnights, values)
    return found


# Cached: it is the same for all homes of a day, and creating a generator is slow.
@lru_cache(maxsize=1024)
def _spell(seed: int, day: int) -> float:
    return float(draws(seed, "weather", day).normal(0, 2.5))


@lru_cache(maxsize=1024)
def _clouds(seed: int, day: int) -> Values:
    return draws(seed, "clouds", day).uniform(0.15, 1, 25)


def daylight(seed: int, day: int, times: Seconds) -> Values:
    """Return the daylight in lux, 0 at night; clouds change from hour to hour."""
    half = 6 - 2.3 * np.cos((day - _SHORTEST) / _YEAR * 2 * np.pi)
    height = np.cos((times / DAY - 0.5) * 24 / half * np.pi / 2)
    up = np.where(np.abs(times / DAY - 0.5) * 24 < half, np.clip(height, 0, None), 0)
    clouds = np.interp(times, np.arange(25) * 3600.0, _clouds(seed, day))
    found: Values = 20_000 * up * clouds
    return found
