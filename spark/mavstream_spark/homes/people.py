"""Homes and the people in them, as they are on every day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mavstream_spark.homes.draws import draws
from mavstream_spark.homes.rooms import ROOMS

_SKEWED_HOMES = 0.03


@dataclass(frozen=True, slots=True)
class Person:
    """The habits of a person, in hours of the day."""

    wakes: float
    leaves: float
    """When to leave for work on weekdays, if `works`."""
    returns: float
    sleeps: float
    works: bool
    drives: bool
    """Whether the person leaves by car, through the garage."""


@dataclass(frozen=True, slots=True)
class Home:
    """A home: its people, its building and its sensors."""

    number: int
    people: tuple[Person, ...]
    warmth: float
    """The preferred temperature, in degrees Celsius."""
    leak: float
    """The share of the difference to the outside temperature that gets in."""
    windows: tuple[float, ...]
    """The share of daylight that each room gets."""
    offsets: tuple[float, ...]
    """The error of each room's thermometer, in degrees."""
    skew: float
    """The error of the clock of the motion sensors in seconds, mostly 0."""


def home_of(seed: int, number: int) -> Home:
    """Return a home by its number."""
    random = draws(seed, "home", number)
    people = tuple(_person(random) for _ in range(1 + random.binomial(4, 0.35)))
    skewed = random.random() < _SKEWED_HOMES
    skew = float(random.choice((-1, 1)) * random.uniform(2, 300))
    return Home(
        number=number,
        people=people,
        warmth=float(random.normal(21, 0.8)),
        leak=float(random.uniform(0.05, 0.15)),
        windows=tuple((random.uniform(0.05, 0.3, len(ROOMS)) * (1, 0.5, 1, 0.4, 1.5, 0.05)).tolist()),
        offsets=tuple(random.normal(0, 0.4, len(ROOMS)).tolist()),
        skew=skew if skewed else 0.0,
    )


def _person(random: np.random.Generator) -> Person:
    wakes = float(np.clip(random.normal(6.8, 0.7), 4.5, 9))
    return Person(
        wakes=wakes,
        leaves=wakes + float(random.uniform(1.0, 1.8)),
        returns=float(np.clip(random.normal(17.2, 1.0), 14, 20)),
        sleeps=float(np.clip(random.normal(22.7, 0.5), 21, 23.8)),
        works=bool(random.random() < 0.6),
        drives=bool(random.random() < 0.5),
    )
