"""The data model of pictures: lines over a parameter, groups of bars, or boxes of response times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Point = tuple[str, str] | Callable[[Mapping[str, Mapping[str, float]]], float]
"""A cell and the name of one of its metrics, or a function of the metrics of all cells."""


@dataclass(frozen=True, slots=True)
class Lines:
    """One line per series, with bars for the confidence intervals."""

    x: str
    """Label of the x axis."""
    y: str
    """Label of the y axis."""
    series: Mapping[str, Mapping[float, Point]]
    """Points by label of the line, then by x."""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars, with their confidence intervals."""

    y: str
    groups: Mapping[str, Mapping[str, Point]]
    """Points by label of the group, then of the bar."""
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Boxes:
    """A group of boxes for each cell, one per class, from the 10th to the 90th percentile."""

    cells: Mapping[str, str]
    """Cells by label."""
    classes: tuple[str, ...]
    y: str = "response time, ms"


Picture = Lines | Bars | Boxes
