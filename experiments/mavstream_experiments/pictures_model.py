"""What pictures show, as data: lines over what varies, bars by group, or boxes of response times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Point = tuple[str, str] | Callable[[Mapping[str, Mapping[str, float]]], float]
"""A cell and the name of one of its figures, or what is worked out from the figures of all cells."""


@dataclass(frozen=True, slots=True)
class Lines:
    """One line per series, with bars for the confidence intervals."""

    x: str
    """What the axes say."""
    y: str
    series: Mapping[str, Mapping[float, Point]]
    """By label, then by place on the x axis."""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars, with their confidence intervals."""

    y: str
    groups: Mapping[str, Mapping[str, Point]]
    """By label of the group, then of the bar."""
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Boxes:
    """For each cell a group of boxes, one per class, from the 10th to the 90th percentile."""

    cells: Mapping[str, str]
    """Cells by label."""
    classes: tuple[str, ...]
    y: str = "response time, ms"


Picture = Lines | Bars | Boxes
