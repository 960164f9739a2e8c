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
    """Bytes of a tuple that is passed on; an output passes answers on as they are. In a shared pipeline both
    sizes count once for each member, and what its fan-out passes on is what all members hold."""

    @property
    def fans_out(self) -> bool:
        """Whether it is the fan-out of a shared pipeline."""
        return self.operator.kind is OperatorKind.OUTPUT and bool(self.operator.downstream)

    @property
    def is_output(self) -> bool:
        """Whether it writes answers to the result log."""
        return self.operator.kind is OperatorKind.OUTPUT and not self.operator.downstream


Route = tuple[Stage, ...]


def routes(
    query: QueryView, figures: Mapping[int, Statistics], members: Sequence[float] = ()
) -> tuple[Route, ...]:
    """Return the query's paths, and a route from each operator that is on none of them up to the root.

    Paths follow the first reader of a split; its other readers would otherwise be on no route. `members` are
    the bytes that each member of a shared pipeline holds of a tuple behind the root.
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
    return tuple(_staged(path, figures, feeders, members) for path in found.values())


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
    members: Sequence[float],
) -> Route:
    stages = []
    copies = len(members) or 1
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
                # An output passes nothing on to operators: its selectivity says nothing about answers.
                1.0 if output else max(own.selectivity, _LEAST_SELECTIVITY) * share,
                copies * size,
                _output_size(size, members) if output else copies * own.tuple_size,
            )
        )
        size = own.tuple_size
    return tuple(stages)


def _entering(
    operator: OperatorView,
    figures: Mapping[int, Statistics],
    feeders: Mapping[int, Sequence[OperatorView]],
) -> float:
    """Return the size of a tuple that enters a route at an operator.

    A leaf gets what its source emits, even if the source is not in the view. A route that starts above
    another operator gets what that one emits; a source emits rows as it reads them.
    """
    if operator.leaf:
        return figures[operator.number].input_size
    below = feeders[operator.number] or [operator]
    return sum(figures[feeder.number].tuple_size for feeder in below) / len(below)


def _output_size(size: float, members: Sequence[float]) -> float:
    """Return the bytes behind a root: what all members hold of a tuple, or the answer itself."""
    return sum(members) if members else size
