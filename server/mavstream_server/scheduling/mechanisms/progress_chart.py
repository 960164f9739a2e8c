"""Progress chart of a route and its lower envelope, from which Chain takes its priorities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.route import Route

_STRAIGHT = 1 - 1e-9
"""Slopes that differ only by rounding count as one line."""


class Point(NamedTuple):
    """Progress of a tuple after an operator."""

    time: float
    """Work so far: sum of (product of the preceding selectivities x cost), in nanoseconds."""
    size: float
    """Expected remaining size: bytes x probability that the tuple still exists."""


def progress_chart(route: Route) -> list[Point]:
    """Return the points of a route, one more than operators; the size after the last one is 0."""
    time, passed = 0.0, 1.0
    points = [Point(0.0, route[0].size_in)]
    for stage in route:
        time += passed * stage.cost
        passed *= stage.selectivity
        points.append(Point(time, passed * stage.size_out))
    return [*points[:-1], Point(time, 0.0)]


def envelope(route: Route) -> list[float]:
    """Return the slope of the chart's lower envelope at each operator, in bytes freed per nanosecond.

    From each corner it follows the steepest descent; all operators on that line have its slope.
    """
    slopes: list[float] = []
    while len(slopes) < len(route):
        # The chart of the remaining route has the same slopes, without underflow where little passes.
        slope, operators = _steepest(progress_chart(route[len(slopes) :]))
        slopes += [slope] * operators
    return slopes


def _steepest(points: Sequence[Point]) -> tuple[float, int]:
    """Return the steepest descent from the first point and the index where it ends, the last of equals."""
    steepest, last = 0.0, 1
    for index in range(1, len(points)):
        slope = (points[0].size - points[index].size) / points[index].time
        if slope >= steepest * _STRAIGHT:
            steepest, last = max(slope, steepest), index
    return steepest, last
