"""The progress chart of a route, and its lower envelope, which Chain takes its priorities from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.route import Route

_STRAIGHT = 1 - 1e-9
"""Slopes that differ by rounding alone are one line."""


class Point(NamedTuple):
    """What is left of a tuple behind an operator."""

    time: float
    """Work on it so far: sum of (product of the selectivities before x cost), in nanoseconds."""
    size: float
    """Its expected size: bytes x the probability that it still exists."""


def progress_chart(route: Route) -> list[Point]:
    """Return the points of a route, one more than operators; behind the last one nothing is left."""
    time, passed = 0.0, 1.0
    points = [Point(0.0, route[0].size_in)]
    for stage in route:
        time += passed * stage.cost
        passed *= stage.selectivity
        points.append(Point(time, passed * stage.size_out))
    return [*points[:-1], Point(time, 0.0)]


def envelope(route: Route) -> list[float]:
    """Return the slope of the chart's lower envelope at each operator, in bytes freed per nanosecond.

    From each corner it goes down as steeply as it can; all operators below that line have its slope.
    """
    slopes: list[float] = []
    while len(slopes) < len(route):
        # The chart of the rest has the same slopes, and does not lose them where little has passed.
        slope, operators = _steepest(progress_chart(route[len(slopes) :]))
        slopes += [slope] * operators
    return slopes


def _steepest(points: Sequence[Point]) -> tuple[float, int]:
    """Return the steepest descent from the first point, and to which one it goes, the furthest of equals."""
    steepest, last = 0.0, 1
    for index in range(1, len(points)):
        slope = (points[0].size - points[index].size) / points[index].time
        if slope >= steepest * _STRAIGHT:
            steepest, last = max(slope, steepest), index
    return steepest, last
