"""The readings of each kind of sensor on a home-day, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.anomalies import FIRE, INTRUSION, Anomaly, anomaly_of
from mavstream_spark.homes.climate import humidity_in, temperature_in
from mavstream_spark.homes.devices import watts_of
from mavstream_spark.homes.draws import draws
from mavstream_spark.homes.people import Home, home_of
from mavstream_spark.homes.rooms import AWAY, BACK, DAY, DEVICES, HALL, ROOMS
from mavstream_spark.homes.routines import Routine, routine_of
from mavstream_spark.homes.weather import daylight

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Values = NDArray[Any]

_CLIMATE_EVERY = _LIGHT_EVERY = 300.0
_POWER_EVERY = 120.0
_FIRE_EVERY = 10.0
# Mean seconds between two detections by activity, and their mean level.
_GAPS = np.array([1500.0, 45.0, 20.0])
_STRENGTH = np.array([0.12, 0.45, 0.70])
_FALSE_ALARMS = 20
"""Detections a day without a person: curtains, pets, sunlight."""


@dataclass(frozen=True, slots=True)
class HomeDay:
    """One home on one day: everything that its sensors can observe."""

    seed: int
    day: int
    home: Home
    routine: Routine
    anomaly: Anomaly | None

    @classmethod
    def of(cls, seed: int, number: int, day: int, anomalies: float) -> HomeDay:
        """Make a home-day from its seed and numbers."""
        home = home_of(seed, number)
        routine = routine_of(seed, home, day)
        return cls(seed, day, home, routine, anomaly_of(seed, home, day, routine, anomalies))

    def draws(self, purpose: str) -> np.random.Generator:
        """Return the random generator of a purpose on this home-day."""
        return draws(self.seed, purpose, self.home.number, self.day)


@dataclass(frozen=True, slots=True)
class Readings:
    """Rows of a sensor stream: seconds since midnight; number of the room, door or device; value."""

    times: Floats
    places: Codes
    values: Values


def _motion(today: HomeDay) -> Readings:
    random, routine = today.draws("motion"), today.routine
    inside = routine.rooms != AWAY
    starts, lengths = routine.starts[inside], (routine.stops - routine.starts)[inside]
    counts = random.poisson(lengths / _GAPS[routine.activities[inside]])
    times = np.repeat(starts, counts) + random.random(counts.sum()) * np.repeat(lengths, counts)
    places = np.repeat(routine.rooms[inside], counts)
    strength = np.repeat(_STRENGTH[routine.activities[inside]], counts)
    levels = np.clip(strength + random.normal(0, 0.18, len(times)), 0.01, 1)
    stray = random.poisson(_FALSE_ALARMS)
    parts = [(times, places, levels)]
    parts.append(
        (random.uniform(0, DAY, stray), random.integers(0, len(ROOMS), stray), random.random(stray) * 0.3)
    )
    if today.anomaly is not None and today.anomaly.kind == INTRUSION:
        parts.append(_intruder(today.anomaly, random))
    # Who uses a door is detected in the hall.
    near = routine.door_times + random.uniform(0.05, 3, len(routine.door_times))
    parts.append((near, np.full(len(near), HALL), random.uniform(0.6, 1, len(near))))
    found = _joined(parts)
    return Readings(found.times, found.places, np.round(found.values, 2))


def _intruder(anomaly: Anomaly, random: np.random.Generator) -> tuple[Floats, Codes, Floats]:
    count = int((anomaly.end - anomaly.begin) / 8)
    times = np.sort(random.uniform(anomaly.begin, anomaly.end, count))
    # From room to room, for a while in each.
    rooms = random.integers(0, len(ROOMS), 8)[np.minimum(np.arange(count) * 8 // max(count, 1), 7)]
    return times, rooms, random.uniform(0.82, 1, count)


def _doors(today: HomeDay) -> Readings:
    random, routine = today.draws("doors"), today.routine
    times, doors = routine.door_times, routine.doors
    if today.anomaly is not None and today.anomaly.kind == INTRUSION:
        times = np.concatenate((times, [today.anomaly.begin, today.anomaly.end]))
        doors = np.concatenate((doors, [BACK, BACK]))
    closed = times + random.uniform(3, 12, len(times))
    states = np.repeat(np.array([True, False]), len(times))
    return Readings(np.concatenate((times, closed)), np.concatenate((doors, doors)), states)


def _climate_times(today: HomeDay, room: int) -> Floats:
    """Return when the climate sensor of a room reports: every 10 s in a fire."""
    random = draws(today.seed, "climate clock", today.home.number, today.day, room)
    phase = random.uniform(0, _CLIMATE_EVERY)
    times = np.arange(phase, DAY, _CLIMATE_EVERY)
    times = times + random.normal(0, 0.4, len(times))
    anomaly = today.anomaly
    if anomaly is not None and anomaly.kind == FIRE and anomaly.room == room:
        times = np.sort(np.concatenate((times, np.arange(anomaly.begin, anomaly.end, _FIRE_EVERY))))
    found: Floats = np.clip(times, 0, DAY - 1.0)
    return found


def _temperature(today: HomeDay) -> Readings:
    random, parts = today.draws("temperature"), []
    for room in range(len(ROOMS)):
        times = _climate_times(today, room)
        values = temperature_in(today.seed, today.day, today.home, today.routine, today.anomaly, room, times)
        values = values + today.home.offsets[room] + random.normal(0, 0.12, len(times))
        parts.append((times, np.full(len(times), room), np.round(values, 1)))
    return _joined(parts)


def _humidity(today: HomeDay) -> Readings:
    random, parts = today.draws("humidity"), []
    for room in range(len(ROOMS)):
        # The same device as the thermometer: it sends this value right after the temperature.
        times = _climate_times(today, room)
        values = humidity_in(today.seed, today.day, today.home, today.routine, today.anomaly, room, times)
        values = np.clip(np.rint(values + random.normal(0, 1.2, len(times))), 5, 99)
        sent = times + random.uniform(0.02, 0.5, len(times))
        parts.append((sent, np.full(len(times), room), values.astype(np.int64)))
    return _joined(parts)


def _light(today: HomeDay) -> Readings:
    random, parts = today.draws("light"), []
    for room in range(len(ROOMS)):
        times = np.arange(random.uniform(0, _LIGHT_EVERY), DAY, _LIGHT_EVERY)
        sun = daylight(today.seed, today.day, times) * today.home.windows[room]
        lamps = np.where(today.routine.awake(times, room) & (sun < 120), random.uniform(120, 320), 0)
        if today.anomaly is not None and today.anomaly.kind == FIRE and today.anomaly.room == room:
            lamps = lamps + np.where((times >= today.anomaly.begin) & (times < today.anomaly.end), 900, 0)
        values = np.clip(
            (sun + lamps) * random.normal(1, 0.03, len(times)) + random.normal(1, 0.5, len(times)), 0, None
        )
        parts.append((times, np.full(len(times), room), np.round(values, 1)))
    return _joined(parts)


def _power(today: HomeDay) -> Readings:
    random, parts = today.draws("power"), []
    for device in range(len(DEVICES)):
        times = np.arange(random.uniform(0, _POWER_EVERY), DAY - 10, _POWER_EVERY)
        times = times + random.uniform(0, 5, len(times))
        values = watts_of(
            DEVICES[device], today.seed, today.day, today.home, today.routine, today.anomaly, times, random
        )
        values = np.clip(
            values * random.normal(1, 0.02, len(times)) + random.normal(0.6, 0.2, len(times)), 0, None
        )
        parts.append((times, np.full(len(times), device), np.round(values, 1)))
    return _joined(parts)


def _joined(parts: Sequence[tuple[Floats, Codes, Values]]) -> Readings:
    times, places, values = zip(*parts, strict=True)
    return Readings(np.concatenate(times), np.concatenate(places), np.concatenate(values))


SENSORS: Mapping[str, Callable[[HomeDay], Readings]] = MappingProxyType(
    {
        "motion": _motion,
        "doors": _doors,
        "light": _light,
        "temperature": _temperature,
        "humidity": _humidity,
        "power": _power,
    }
)
"""The function that makes the readings of each stream."""
