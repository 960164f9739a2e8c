"""Units of operators that run as one: paths, segments, simplified segments (thesis, 4.1.2 to 4.1.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.ratio import Work, with_best
from mavstream_server.scheduling.mechanisms.route import Route, Stage
from mavstream_server.scheduling.view import OperatorView


class AnswerMemory(StrEnum):
    """How answers count in memory release capacities."""

    HELD = "held"
    """With their size: they go to the output buffer of the root, which is in memory (thesis, 4.1.3.2 and
    4.2.1). Here the output operator is that buffer: it frees nothing by itself, and runs with the root."""
    FREED = "freed"
    """As nothing: the output operator writes them to the result log and frees their memory, as in Chain."""


class Unit(NamedTuple):
    """Operators that run together, bottom-up, with their joint capacities."""

    operators: tuple[OperatorView, ...]
    processing: float
    """Processing capacity: tuples that the unit can consume per nanosecond."""
    release: float
    """Memory release capacity: bytes that the unit can free per nanosecond; negative if it adds bytes."""

    @property
    def freed(self) -> float:
        """Bytes freed per input tuple."""
        return self.release / self.processing


def unit(
    part: Sequence[Stage], answers: AnswerMemory = AnswerMemory.HELD, above: Sequence[Unit] = ()
) -> Unit:
    """Return a part of a route as a unit.

    Processing capacity is 1 / sum of (product of the preceding selectivities x cost), memory release capacity
    is that times (size in - size out x product of all selectivities). A part that ends with a fan-out
    releases memory together with the units above it in members that release it faster.
    """
    last = part[-1]
    size_out = 0.0 if last.is_output and answers is AnswerMemory.FREED else last.size_out
    time, passed = 0.0, 1.0
    for stage in part:
        time += passed * stage.cost
        passed *= stage.selectivity
    freed = Work(part[0].size_in - size_out * passed, time)
    if above and last.fans_out:
        best = sorted(above, key=lambda one: -one.release)
        freed = with_best(freed, (Work(passed * one.freed, passed / one.processing) for one in best))
    return Unit(tuple(stage.operator for stage in part), 1 / time, freed.gain / freed.cost)


def paths(routes: Iterable[Route]) -> tuple[Unit, ...]:
    """Return each route as a unit."""
    return tuple(unit(route) for route in routes)


def segments(
    routes: Iterable[Route], answers: AnswerMemory = AnswerMemory.HELD, beyond: Iterable[Route] = ()
) -> tuple[Unit, ...]:
    """Cut routes wherever an operator does not release memory faster than the one before it (4.1.3.1).

    `beyond` are the routes of the members of a shared pipeline.
    """
    cut: list[Route] = []
    for route in routes:
        begin = 0
        while begin < len(route):
            end = begin + _together(route[begin:], 1.0, answers)
            cut.append(route[begin:end])
            begin = end
    above = _first_units(beyond, 1.0, answers)
    return tuple(unit(part, answers, above) for part in _pruned(cut))


def simplified_segments(
    routes: Iterable[Route],
    gamma: float,
    answers: AnswerMemory = AnswerMemory.HELD,
    beyond: Iterable[Route] = (),
) -> tuple[Unit, ...]:
    """Cut routes at most once, where the release capacity falls to gamma times that before (4.1.4.1)."""
    cut: list[Route] = []
    for route in routes:
        end = _together(route, gamma, answers)
        cut += [part for part in (route[:end], route[end:]) if part]
    above = _first_units(beyond, gamma, answers)
    return tuple(unit(part, answers, above) for part in _pruned(cut))


def _first_units(beyond: Iterable[Route], gamma: float, answers: AnswerMemory) -> list[Unit]:
    return [unit(route[: _together(route, gamma, answers)], answers) for route in beyond]


def _together(route: Route, gamma: float, answers: AnswerMemory) -> int:
    """Return how many operators at the start of a route form one segment.

    Single operators are compared, not segments as in Chain. A negative capacity ends a segment: the ratio
    of two negative capacities is meaningless. A fan-out, and an output that holds answers, belong to the
    operator below.
    """
    capacities = [unit((stage,), answers).release for stage in route]
    for place in range(1, len(route)):
        if route[place].fans_out or (route[place].is_output and answers is AnswerMemory.HELD):
            continue
        before, here = capacities[place - 1], capacities[place]
        if before < 0 or here < 0 or here <= gamma * before:
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
