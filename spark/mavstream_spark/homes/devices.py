"""Power that devices draw during the day of a home."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.anomalies import HEATING_FAILURE, Anomaly
from mavstream_spark.homes.climate import target
from mavstream_spark.homes.people import Home
from mavstream_spark.homes.rooms import KITCHEN, LIVING, ROOMS
from mavstream_spark.homes.routines import Routine
from mavstream_spark.homes.weather import daylight, outside

Floats = NDArray[np.float64]
_HOUR = 3600.0
_DARK = 600.0


def watts_of(
    device: str,
    seed: int,
    day: int,
    home: Home,
    routine: Routine,
    anomaly: Anomaly | None,
    times: Floats,
    random: np.random.Generator,
) -> Floats:
    """Return the watts that a device draws at given times."""
    if device == "heater":
        return _heater(seed, day, home, anomaly, times)
    if device == "oven":
        return _oven(routine, times, random)
    if device == "washer":
        return _washer(times, random)
    if device == "fridge":
        # The compressor runs for a third of every 40 minutes.
        return np.where((times + random.uniform(0, 2400)) % 2400 < 800, 140.0, 3.0)
    if device == "tv":
        evening = times > 17 * _HOUR
        return np.where(routine.awake(times, LIVING) & evening, 115.0, 0.5)
    dark = daylight(seed, day, times) < _DARK
    lit = sum(routine.awake(times, room).astype(np.int64) for room in range(len(ROOMS)))
    found: Floats = np.where(dark, 40.0 * np.asarray(lit), 0.0)
    return found


def _heater(seed: int, day: int, home: Home, anomaly: Anomaly | None, times: Floats) -> Floats:
    missing = np.clip(target(home, LIVING, times) - outside(seed, day, times), 0, None)
    watts = missing * (40 + 300 * home.leak)
    if anomaly is not None and anomaly.kind == HEATING_FAILURE:
        watts = np.where((times >= anomaly.begin) & (times < anomaly.end), 0.0, watts)
    return np.minimum(watts, 2400)


def _oven(routine: Routine, times: Floats, random: np.random.Generator) -> Floats:
    """Return the watts of the oven, on during most long stays in the kitchen from the late morning on."""
    watts = np.zeros(len(times))
    lengths = routine.stops - routine.starts
    cooking = (routine.rooms == KITCHEN) & (lengths > 1200) & (routine.starts > 10 * _HOUR)
    for start, length in zip(routine.starts[cooking], lengths[cooking], strict=True):
        if random.random() < 0.7:
            on = (times > start + 120) & (times < start + 0.8 * length)
            # Once hot, the thermostat switches every four minutes.
            hot = (times - start > 900) & ((times - start) % 480 < 240)
            watts = np.where(on, np.where(hot, 300.0, 2650.0), watts)
    return watts


def _washer(times: Floats, random: np.random.Generator) -> Floats:
    runs = random.random() < 0.4
    start = random.uniform(8, 19) * _HOUR
    since = times - start
    heating = np.where(since < 1200, 2050.0, 280.0)
    return np.where(runs & (since > 0) & (since < 1.6 * _HOUR), heating, 1.0)
