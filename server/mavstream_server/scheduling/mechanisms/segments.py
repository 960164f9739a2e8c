"""Units of operators that run as one: paths, segments, simplified segments (thesis, 4.1.2 to 4.1.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.ratio import Work, with_best
from mavstream_server.scheduling.mechanisms.route import Route, Stage
from mavstream_server.scheduling.view import OperatorView


class Unit(NamedTuple):
    """Operators that run together, bottom-up, with their joint capacities."""

    operators: tuple[OperatorView, ...]
    processing: float
    """Processing capacity: tuples that the unit can consume per nanosecond."""
    release: float
    """Memory release capacity: bytes that the unit can free per nanosecond; negative if it adds bytes."""

    @property
    def freed(self) -> float:
        """Bytes that it frees per tuple that it takes in."""
        return self.release / self.processing


def unit(part: Sequence[Stage], above: Sequence[Unit] = ()) -> Unit:
    """Make a unit of a part of a route.

    Processing capacity is 1 / sum of (product of the selectivities before x cost), memory release capacity
    is that times (size in - size out x product of all selectivities). A part that ends with a fan-out
    releases memory together with units above it in members, where that is more per time.
    """
    time, passed = 0.0, 1.0
    for stage in part:
        time += passed * stage.cost
        passed *= stage.selectivity
    freed = Work(part[0].size_in - part[-1].size_out * passed, time)
    if above and part[-1].fans_out:
        best = sorted(above, key=lambda one: -one.release)
        freed = with_best(freed, (Work(passed * one.freed, passed / one.processing) for one in best))
    return Unit(tuple(stage.operator for stage in part), 1 / time, freed.gain / freed.cost)


def paths(routes: Iterable[Route]) -> tuple[Unit, ...]:
    """Return each route as a unit."""
    return tuple(unit(route) for route in routes)


def segments(routes: Iterable[Route], beyond: Iterable[Route] = ()) -> tuple[Unit, ...]:
    """Cut routes wherever the next operator does not release memory faster than the one before (4.1.3.1).

    `beyond` are routes of members, where a shared pipeline is cut.
    """
    cut: list[Route] = []
    for route in routes:
        begin = 0
        while begin < len(route):
            end = begin + _together(route[begin:], 1.0)
            cut.append(route[begin:end])
            begin = end
    above = _first_units(beyond, 1.0)
    return tuple(unit(part, above) for part in _pruned(cut))


def simplified_segments(
    routes: Iterable[Route], gamma: float, beyond: Iterable[Route] = ()
) -> tuple[Unit, ...]:
    """Cut routes once at most, where the release capacity falls to gamma times the one before (4.1.4.1)."""
    cut: list[Route] = []
    for route in routes:
        end = _together(route, gamma)
        cut += [part for part in (route[:end], route[end:]) if part]
    above = _first_units(beyond, gamma)
    return tuple(unit(part, above) for part in _pruned(cut))


def _first_units(beyond: Iterable[Route], gamma: float) -> list[Unit]:
    return [unit(route[: _together(route, gamma)]) for route in beyond]


def _together(route: Route, gamma: float) -> int:
    """Return how many operators at the start of a route form one segment.

    Single operators are compared, not segments as in Chain. A negative capacity breaks a segment: the ratio
    of two of them says nothing. A fan-out goes with the operator below it, as if members read that one.
    """
    capacities = [unit((stage,)).release for stage in route]
    for place in range(1, len(route)):
        before, here = capacities[place - 1], capacities[place]
        if (before < 0 or here < 0 or here <= gamma * before) and not route[place].fans_out:
            return place
    return len(route)


def _pruned(parts: Iterable[Route]) -> list[Route]:
    """Leave out parts contained in another part (5.1.5): routes that join have segments in common."""
    kept: list[tuple[frozenset[int], Route]] = []
    for part in parts:
        numbers = frozenset(stage.operator.number for stage in part)
        if any(numbers <= others for others, _ in kept):
            continue
        kept = [(others, other) for others, other in kept if not others < numbers]
        kept.append((numbers, part))
    return [part for _, part in kept]
