"""The data model of experiments: their simulations, claims and pictures.

An experiment is a set of cells. A cell is one simulation, repeated for every seed; its metrics are kept by
name. A claim is a value computed from the metrics of all cells of one seed, and the band it has to lie in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mavstream_experiments.bands import Band
from mavstream_experiments.pictures_model import Picture
from mavstream_server.simulation.report.result import Result

SEEDS = 5

Metrics = Mapping[str, float]
"""The metrics of one simulation, by name (see `metrics.py`)."""
Table = Mapping[str, Metrics]
"""The metrics of all cells of an experiment for one seed, by cell."""
Value = Callable[[Table], float]
"""A number computed from a table; NaN if the seed does not show what is to be measured."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation: the arguments of `simulate` except the seed."""

    workload: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `simulate`: utilisation, seconds, cores, parameters, ..."""
    extra: Callable[[Result], Metrics] | None = None
    """A module-level function that returns metrics beyond those of `metrics.py`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper as a value and the band that it has to lie in.

    It must be able to fail: a value that lies in the band whatever the schedulers do is not a claim.
    """

    text: str
    """What is claimed, in our words."""
    published: str
    """The number or statement of the paper, with the section or figure that has it."""
    value: Value
    holds: Band
    partly: Band | None = None
    """A wider band in which the direction is right and the size is not."""
    unit: str = ""
    required: bool = False
    """Whether a release is held to it."""
    no_effect: bool = False
    """Whether the paper claims that nothing differs or happens: then it holds where all cells are alike."""
    fitted: bool = False
    """Whether the calibration was chosen to make it hold, so that holding is no evidence."""
    needs: str = ""
    """What a seed has to show for the value to be measured, for example "an inversion to remove"."""


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
    """Cells short enough to be run by the tests."""
