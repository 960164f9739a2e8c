"""Temperature and humidity in the rooms of a home, as functions of time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.anomalies import FIRE, FLOOD, HEATING_FAILURE, Anomaly
from mavstream_spark.homes.people import Home
from mavstream_spark.homes.rooms import BATHROOM, BEDROOM, CELLAR, DAY, KITCHEN
from mavstream_spark.homes.routines import Routine
from mavstream_spark.homes.weather import outside

Floats = NDArray[np.float64]
_COOLING = 4 * 3600.0
"""Time constant of cooling without heating, in seconds."""
_DRYING = 1800.0
_STEAM = {BATHROOM: 22.0, KITCHEN: 9.0}
_LIKED = {BEDROOM: -2.0, BATHROOM: 1.0, CELLAR: -6.0}


def target(home: Home, room: int, times: Floats) -> Floats:
    """Return the set temperature of the heating, which is lower at night."""
    night = 0.5 * (1 + np.cos((times / DAY - 3.5 / 24) * 2 * np.pi)) ** 2 / 2
    found: Floats = home.warmth + _LIKED.get(room, 0.0) - 2.2 * night
    return found


def temperature_in(
    seed: int, day: int, home: Home, routine: Routine, anomaly: Anomaly | None, room: int, times: Floats
) -> Floats:
    """Return the temperature in a room, in degrees Celsius."""
    weather = outside(seed, day, times)
    liked = target(home, room, times)
    # There is no cooling: heat of a hot day gets in, little of it into the cellar.
    warm = np.maximum(weather - liked, 0) * (0.15 if room == CELLAR else 0.7)
    values = liked + home.leak * np.minimum(weather - liked, 0) * 0.3 + warm
    values = values + 0.25 * routine.occupancy(times, room)
    if anomaly is not None:
        values = _disturbed(values, weather, anomaly, room, times)
    return values


def _disturbed(values: Floats, weather: Floats, anomaly: Anomaly, room: int, times: Floats) -> Floats:
    since = np.clip(times - anomaly.begin, 0, None)
    after = np.clip(times - anomaly.end, 0, None)
    if anomaly.kind == FIRE:
        most = 62.0 if room == anomaly.room else 6.0
        heat = most * (1 - np.exp(-np.minimum(since, anomaly.end - anomaly.begin) / 180))
        burnt: Floats = values + heat * np.exp(-after / 1200)
        return burnt
    if anomaly.kind == HEATING_FAILURE:
        lost = 1 - np.exp(-np.minimum(since, anomaly.end - anomaly.begin) / _COOLING)
        cooled: Floats = values + np.minimum(weather - values, 0) * lost * np.exp(-after / _COOLING * 2)
        return cooled
    if anomaly.kind == FLOOD and room == anomaly.room:
        wet: Floats = values - 2.0 * ((since > 0) & (after == 0))
        return wet
    return values


def humidity_in(
    seed: int, day: int, home: Home, routine: Routine, anomaly: Anomaly | None, room: int, times: Floats
) -> Floats:
    """Return the relative humidity in a room, in percent."""
    values = 47 + 0.5 * (outside(seed, day, times) - 10) + (14 if room == CELLAR else 0)
    values = values + 1.5 * routine.occupancy(times, room)
    for start, stop in _steamy(routine, room):
        steam = np.clip((times - start) / 300, 0, 1) * (times < stop)
        gone = np.exp(-np.clip(times - stop, 0, None) / _DRYING) * (times >= stop)
        values = values + _STEAM[room] * (steam + gone)
    if anomaly is not None and anomaly.room == room:
        inside = (times >= anomaly.begin) & (times < anomaly.end)
        if anomaly.kind == FLOOD:
            values = np.where(inside, 97.0, values)
        elif anomaly.kind == FIRE:
            values = np.where(inside, 18.0, values)
    return values


def _steamy(routine: Routine, room: int) -> list[tuple[float, float]]:
    """Return the stays that make steam: long ones in the bathroom or the kitchen."""
    if room not in _STEAM:
        return []
    long = (routine.rooms == room) & (routine.stops - routine.starts > 900)
    return list(zip(routine.starts[long].tolist(), routine.stops[long].tolist(), strict=True))
