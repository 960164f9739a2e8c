"""Anomalies: fires, floods, intrusions and heating failures, each within one day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mavstream_spark.homes.draws import draws
from mavstream_spark.homes.people import Home
from mavstream_spark.homes.rooms import BATHROOM, CELLAR, HALL, KITCHEN, LIVING
from mavstream_spark.homes.routines import Routine

FIRE, FLOOD, INTRUSION, HEATING_FAILURE = KINDS = ("fire", "flood", "intrusion", "heating_failure")
_HOUR = 3600.0
_LENGTHS = {
    FIRE: (600, 1800),
    FLOOD: (1 * _HOUR, 3 * _HOUR),
    INTRUSION: (400, 1200),
    HEATING_FAILURE: (6 * _HOUR, 10 * _HOUR),
}
_ROOMS = {
    FIRE: (KITCHEN, LIVING, CELLAR),
    FLOOD: (BATHROOM, KITCHEN, CELLAR),
    INTRUSION: (HALL,),
    HEATING_FAILURE: (CELLAR,),
}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly, with times in seconds since midnight."""

    kind: str
    room: int
    begin: float
    end: float


def anomaly_of(seed: int, home: Home, day: int, routine: Routine, share: float) -> Anomaly | None:
    """Return the anomaly of a home-day, if it has one; `share` is the probability."""
    random = draws(seed, "anomaly", home.number, day)
    if random.random() >= share:
        return None
    kind = KINDS[random.integers(len(KINDS))]
    length = float(random.uniform(*_LENGTHS[kind]))
    room = _ROOMS[kind][random.integers(len(_ROOMS[kind]))]
    begin = float(random.uniform(_HOUR, 23 * _HOUR - length))
    if kind == INTRUSION:
        begin = _unseen_time(routine, random, length)
    return Anomaly(kind, room, round(begin, 3), round(begin + length, 3))


def _unseen_time(routine: Routine, random: np.random.Generator, length: float) -> float:
    """Return when an intruder comes: while everybody is out, else in the small hours."""
    times = random.uniform(8 * _HOUR, 21 * _HOUR, 40)
    for time in times:
        stay = time + np.linspace(-120, length + 120, 20)
        if not routine.anyone_home(stay).any():
            return float(time)
    return float(random.uniform(1.5 * _HOUR, 4 * _HOUR))
