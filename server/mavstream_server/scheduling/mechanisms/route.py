"""Routes through a query: operators from leaf to root, with their cost, selectivity and tuple sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView

LEAST_COST = 0.001
"""Nanoseconds. Keeps capacities finite, so that they can be compared."""
_LEAST_SELECTIVITY = 1e-6
"""An operator that has passed nothing yet may still: keeps the operators above it comparable."""


class Stage(NamedTuple):
    """An operator on a route."""

    operator: OperatorView
    cost: float
    """Nanoseconds per input tuple."""
    selectivity: float
    """Tuples passed on along the route per input tuple."""
    size_in: float
    """Bytes of an input tuple."""
    size_out: float
    """Bytes of a tuple that is passed on: 0 for an output, whose tuples do not wait anywhere. The fan-out of
    a shared pipeline passes one tuple to each member: this is the size of all of them together."""


Route = tuple[Stage, ...]


def routes(query: QueryView, figures: Mapping[int, Statistics], handed_on: float) -> tuple[Route, ...]:
    """Return the query's paths, and a route from each operator that is on none of them up to the root.

    Paths follow the first reader of a split; its other readers would otherwise be on no route. `handed_on` is
    what is held, in bytes, for a tuple behind the root: by the members of a shared pipeline, else 0.
    """
    feeders: dict[int, list[OperatorView]] = {operator.number: [] for operator in query.operators}
    for operator in query.operators:
        for reader in readers(operator, figures):
            feeders[reader.number].append(operator)
    found = {tuple(operator.number for operator in path): path for path in query.paths}
    covered = {number for numbers in found for number in numbers}
    for operator in query.operators:
        if operator.number not in covered:
            path = _upwards(operator, figures)
            found[tuple(part.number for part in path)] = path
            covered.update(part.number for part in path)
    return tuple(_staged(path, figures, feeders, handed_on) for path in found.values())


def readers(operator: OperatorView, figures: Mapping[int, Statistics]) -> list[OperatorView]:
    """Return the readers of an operator inside its query; readers in other queries are left out."""
    return [reader for reader in operator.downstream if reader.number in figures]


def readers_beyond(query: QueryView) -> list[OperatorView]:
    """Return the operators of other queries that read a query's root: the members of a shared pipeline."""
    roots = (operator for operator in query.operators if operator.kind is OperatorKind.OUTPUT)
    return [reader for root in roots for reader in root.downstream]


def onward(query: QueryView) -> dict[int, tuple[OperatorView, ...]]:
    """Return each operator with all operators above it inside the query, bottom-up, by operator number."""
    operators = query.operators
    reached: dict[int, set[int]] = {}
    for place in range(len(operators) - 1, -1, -1):
        operator = operators[place]
        above = (reached[reader.number] for reader in operator.downstream if reader.number in reached)
        reached[operator.number] = {place}.union(*above)
    return {number: tuple(operators[place] for place in sorted(places)) for number, places in reached.items()}


def _upwards(operator: OperatorView, figures: Mapping[int, Statistics]) -> list[OperatorView]:
    path = [operator]
    while above := readers(path[-1], figures):
        path.append(above[0])
    return path


def _staged(
    path: Sequence[OperatorView],
    figures: Mapping[int, Statistics],
    feeders: Mapping[int, Sequence[OperatorView]],
    handed_on: float,
) -> Route:
    stages = []
    size = _entering(path[0], figures, feeders)
    for operator in path:
        own = figures[operator.number]
        output = operator.kind is OperatorKind.OUTPUT
        # A split passes each tuple to one of its readers.
        share = 1 / len(operator.downstream) if operator.operator == "split" and operator.downstream else 1.0
        stages.append(
            Stage(
                operator,
                max(own.cost_per_tuple, LEAST_COST),
                1.0 if output else max(own.selectivity, _LEAST_SELECTIVITY) * share,
                size,
                handed_on if output else own.tuple_size,
            )
        )
        size = own.tuple_size
    return tuple(stages)


def _entering(
    operator: OperatorView,
    figures: Mapping[int, Statistics],
    feeders: Mapping[int, Sequence[OperatorView]],
) -> float:
    """Return the tuple size at the start of a route; streams are not measured and count as unchanged."""
    below = feeders[operator.number] or [operator]
    return sum(figures[feeder.number].tuple_size for feeder in below) / len(below)
