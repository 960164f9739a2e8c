"""Routines: who is in which room when, on one day.

Every day begins and ends in bed, so days are independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from mavstream_spark.homes.draws import draws
from mavstream_spark.homes.people import Home, Person
from mavstream_spark.homes.rooms import (
    AWAY,
    BACK,
    BATHROOM,
    BEDROOM,
    CELLAR,
    CELLAR_DOOR,
    DAY,
    FRONT,
    GARAGE,
    HALL,
    KITCHEN,
    LIVING,
    ROOMS,
)

_HOUR = 3600.0
_FREE_ROOMS = (LIVING, KITCHEN, BATHROOM, BEDROOM, CELLAR, AWAY)
_AT_DAY = (0.40, 0.18, 0.08, 0.12, 0.05, 0.17)
_AT_EVENING = (0.62, 0.18, 0.10, 0.07, 0.03, 0.0)


class Activity(IntEnum):
    """What somebody does in a room; it decides how much there is to see."""

    SLEEP = 0
    REST = 1
    """Sitting: reading, television."""
    WORK = 2
    """On one's feet: cooking, washing, dressing."""


@dataclass(frozen=True, slots=True)
class Routine:
    """The stays of all people of a home, one element each, and the doors that they used."""

    starts: NDArray[np.float64]
    """Seconds since midnight."""
    stops: NDArray[np.float64]
    rooms: NDArray[np.int64]
    activities: NDArray[np.int64]
    door_times: NDArray[np.float64]
    doors: NDArray[np.int64]

    def occupancy(self, times: NDArray[np.float64], room: int) -> NDArray[np.int64]:
        """Return how many people are in a room at given times, which must be sorted."""
        here = self.rooms == room
        arrived = np.sort(self.starts[here])
        left = np.sort(self.stops[here])
        return np.searchsorted(arrived, times, "right") - np.searchsorted(left, times, "right")

    def awake(self, times: NDArray[np.float64], room: int) -> NDArray[np.bool_]:
        """Return whether somebody is in a room and not asleep."""
        here = (self.rooms == room) & (self.activities != Activity.SLEEP)
        arrived, left = np.sort(self.starts[here]), np.sort(self.stops[here])
        found: NDArray[np.bool_] = np.searchsorted(arrived, times, "right") > np.searchsorted(
            left, times, "right"
        )
        return found

    def anyone_home(self, times: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether somebody is in any room."""
        counts = sum(self.occupancy(times, room) for room in range(len(ROOMS)))
        return np.asarray(counts) > 0


class _Diary:
    """The stays of one person, in the order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stays: list[tuple[float, float, int, int]] = []
        self.doors: list[tuple[float, int]] = []

    def stay(self, room: int, until: float, activity: Activity) -> None:
        until = min(until, float(DAY))
        if until > self.now:
            if room == CELLAR:
                self.doors.append((self.now, CELLAR_DOOR))
            self.stays.append((self.now, until, room, activity))
            self.now = until

    def out(self, until: float, door: int) -> None:
        """Leave the house by a door and return by the same one."""
        self.stay(HALL, self.now + 90, Activity.WORK)
        self.doors.append((self.now - 10, door))
        self.stay(AWAY, until, Activity.REST)
        self.doors.append((self.now, door))
        self.stay(HALL, self.now + 90, Activity.WORK)


def routine_of(seed: int, home: Home, day: int) -> Routine:
    """Return the routine of a home on a day, counted from 1970."""
    random = draws(seed, "routine", home.number, day)
    weekend = (day + 3) % 7 >= 5
    diaries = [_day_of(person, weekend, random) for person in home.people]
    diaries += _visit(weekend, random)
    stays = np.array([stay for diary in diaries for stay in diary.stays])
    doors = np.array([use for diary in diaries for use in diary.doors]).reshape(-1, 2)
    return Routine(
        stays[:, 0],
        stays[:, 1],
        stays[:, 2].astype(np.int64),
        stays[:, 3].astype(np.int64),
        doors[:, 0],
        doors[:, 1].astype(np.int64),
    )


def _day_of(person: Person, weekend: bool, random: np.random.Generator) -> _Diary:
    diary = _Diary()
    late = random.normal(0, 0.25, 4) * _HOUR
    wakes = person.wakes * _HOUR + late[0] + (1.5 * _HOUR if weekend else 0)
    sleeps = person.sleeps * _HOUR + late[1] * 0.5
    for visit in np.sort(random.uniform(_HOUR, wakes - _HOUR, random.poisson(0.4))):
        diary.stay(BEDROOM, float(visit), Activity.SLEEP)
        diary.stay(BATHROOM, float(visit) + random.uniform(120, 400), Activity.WORK)
    diary.stay(BEDROOM, wakes, Activity.SLEEP)
    diary.stay(BATHROOM, wakes + random.uniform(600, 1500), Activity.WORK)
    diary.stay(KITCHEN, diary.now + random.uniform(900, 2400), Activity.WORK)
    if person.works and not weekend:
        _free(diary, person.leaves * _HOUR + late[2], _AT_DAY[:-1], random)
        diary.out(person.returns * _HOUR + late[3], GARAGE if person.drives else FRONT)
    else:
        _free(diary, 17.5 * _HOUR + late[2], _AT_DAY, random)
    diary.stay(KITCHEN, diary.now + random.uniform(1200, 3600), Activity.WORK)
    _free(diary, sleeps - 900, _AT_EVENING, random)
    diary.stay(BATHROOM, sleeps, Activity.WORK)
    diary.stay(BEDROOM, float(DAY), Activity.SLEEP)
    return diary


def _free(diary: _Diary, until: float, weights: tuple[float, ...], random: np.random.Generator) -> None:
    """Spend the time until `until` in one room after the other."""
    shares = np.cumsum(weights) / sum(weights)
    while diary.now < until - 120:
        room = _FREE_ROOMS[int(np.searchsorted(shares, random.random()))]
        stop = min(diary.now + 240 + random.exponential(2000 if room == LIVING else 900), until)
        if room == AWAY:
            diary.out(min(diary.now + random.uniform(1800, 7200), until), BACK if stop % 2 < 0.6 else FRONT)
        else:
            diary.stay(room, stop, Activity.REST if room in (LIVING, BEDROOM) else Activity.WORK)


def _visit(weekend: bool, random: np.random.Generator) -> list[_Diary]:
    """Return the diary of a visitor in the afternoon or evening, on some days."""
    comes = random.random() < (0.35 if weekend else 0.15)
    start, length = random.uniform(15, 19) * _HOUR, random.uniform(1, 3) * _HOUR
    if not comes:
        return []
    diary = _Diary()
    diary.now = start
    diary.doors.append((start, FRONT))
    diary.stay(HALL, start + 120, Activity.WORK)
    diary.stay(LIVING, start + length, Activity.REST)
    diary.stay(HALL, start + length + 120, Activity.WORK)
    diary.doors.append((diary.now, FRONT))
    return [diary]
