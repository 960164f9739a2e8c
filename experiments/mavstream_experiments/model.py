"""Experiments as data: which runs they take, what is claimed of them, and how that is shown.

An experiment is a set of cells. A cell is one simulation, repeated for every seed; what is kept of it are its
figures, by name. A claim is a number worked out from the figures of all cells for each seed, and the band in
which it has to lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from mavstream_experiments.pictures_model import Picture
from mavstream_server.simulation.report.result import Result

SEEDS = 5

Figures = Mapping[str, float]
"""What is kept of one simulation, by name (see `figures.py`)."""
Table = Mapping[str, Figures]
"""The figures of all cells of an experiment for one seed, by cell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation: the arguments of `simulate`, the seed left open."""

    workload: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `simulate`: utilisation, seconds, cores, parameters, ..."""
    extra: Callable[[Result], Figures] | None = None
    """A function of a module for figures besides the usual ones, as those over time."""


@dataclass(frozen=True, slots=True)
class Band:
    """Values from a lowest to a highest, both included."""

    low: float = -inf
    high: float = inf

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.low == -inf:
            return f"at most {self.high:g}"
        if self.high == inf:
            return f"at least {self.low:g}"
        return f"{self.low:g} to {self.high:g}"


def at_least(low: float) -> Band:
    """Return the band that has no upper end."""
    return Band(low=low)


def at_most(high: float) -> Band:
    """Return the band that has no lower end."""
    return Band(high=high)


def between(low: float, high: float) -> Band:
    """Return the band between two values."""
    return Band(low, high)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, as a number and the band that it has to lie in."""

    text: str
    """What is claimed, in our words,"""
    published: str
    """and the paper's figure or statement, with its place."""
    value: Callable[[Table], float]
    holds: Band
    partly: Band | None = None
    """A wider band, in which the direction is right and the size is not."""
    unit: str = ""
    required: bool = False
    """Whether a release is held to it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of a paper."""

    name: str
    """Lower case with dashes: `cqc-figure-4`."""
    paper: str
    title: str
    about: str
    """What is varied and measured, in a sentence or two."""
    calibration: str
    """Which settings were fitted, and which are the paper's."""
    cells: Mapping[str, Cell]
    claims: tuple[Claim, ...]
    picture: Picture | None = None
    seeds: int = SEEDS
    quick: tuple[str, ...] = ()
    """Names of cells that the tests run, short; empty where they leave the experiment out."""
