"""Progress chart of a route and its lower envelope, from which Chain takes its priorities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
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


class Descent(NamedTuple):
    """A straight piece of a lower envelope."""

    slope: float
    """Bytes freed per nanosecond."""
    time: float
    """Duration in nanoseconds."""
    freed: float
    """Bytes freed per tuple at the beginning of the route."""


def progress_chart(route: Route, above: Sequence[Descent] = ()) -> list[Point]:
    """Return the points of a route, one more than operators; the size after the last one is 0.

    That is Chain's definition: answers leave the queues, whatever their size.
    `above` continues the chart behind a shared pipeline, whose members free a tuple piece by piece.
    """
    time, passed = 0.0, 1.0
    points = [Point(0.0, route[0].size_in)]
    for stage in route:
        time += passed * stage.cost
        passed *= stage.selectivity
        points.append(Point(time, passed * stage.size_out))
    left = sum(descent.freed for descent in above)
    points[-1] = Point(time, passed * left)
    for descent in above:
        time, left = time + passed * descent.time, left - descent.freed
        points.append(Point(time, passed * left))
    return [*points[:-1], Point(time, 0.0)]


def envelope(route: Route, above: Sequence[Descent] = ()) -> list[float]:
    """Return the slope of the chart's lower envelope at each operator, in bytes freed per nanosecond.

    From each corner it follows the steepest descent; all operators on that line have its slope.
    """
    slopes: list[float] = []
    while len(slopes) < len(route):
        # The chart of the remaining route has the same slopes, without underflow where little passes.
        slope, points = _steepest(progress_chart(route[len(slopes) :], above))
        slopes += [slope] * min(points, len(route) - len(slopes))
    return slopes


def merged_descents(routes: Iterable[Route]) -> list[Descent]:
    """Return the lower envelopes of routes that begin with the same tuple as one, steepest piece first.

    Pieces of one route stay in their order, since each is flatter than the one before.
    """
    found = [descent for route in routes for descent in _descents(route)]
    return sorted(found, key=lambda descent: -descent.slope)


def _descents(route: Route) -> list[Descent]:
    found, passed = [], 1.0
    while route:
        points = progress_chart(route)
        slope, last = _steepest(points)
        freed = points[0].size - points[last].size
        found.append(Descent(slope, passed * points[last].time, passed * freed))
        passed *= prod(stage.selectivity for stage in route[:last])
        route = route[last:]
    return found


def _steepest(points: Sequence[Point]) -> tuple[float, int]:
    """Return the steepest descent from the first point and the index where it ends, the last of equals."""
    steepest, last = 0.0, 1
    for index in range(1, len(points)):
        slope = (points[0].size - points[index].size) / points[index].time
        if slope >= steepest * _STRAIGHT:
            steepest, last = max(slope, steepest), index
    return steepest, last
