"""What is worked out from the statistics of a running query: kept for every query, whoever decides.

So a policy that takes over finds everything in place (MavStream thesis, 4.1.5), and what it costs to work
it out is paid only when figures move by more than a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.progress_chart import envelope
from mavstream_server.scheduling.mechanisms.route import Route, readers, routes
from mavstream_server.scheduling.mechanisms.segments import Unit, paths, segments, simplified_segments
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorView, QueryView

_TOLERANCE = 0.1


class Fragment(NamedTuple):
    """An operator with everything above it, as one: what a tuple that enters there costs and gives."""

    cost: float
    """Nanoseconds per tuple."""
    selectivity: float
    """Answers per tuple."""

    @property
    def rate(self) -> float:
        """The global output rate: answers per nanosecond of work."""
        return self.selectivity / self.cost if self.cost > 0 else 0.0


class QueryUnits:
    """Figures and units of one query, worked out when they are first asked for."""

    def __init__(self, query: QueryView) -> None:
        self._query = query
        self._based_on = {operator.number: operator.statistics for operator in query.operators}
        self._simplified: dict[float, tuple[Unit, ...]] = {}

    def moved(self, operator: OperatorView) -> bool:
        """Whether an operator's figures differ by more than a tenth from those that are in use."""
        _, cost, selectivity, size, _ = self._based_on[operator.number]
        now = operator.statistics
        return (
            abs(now.cost_per_tuple - cost) > _TOLERANCE * cost
            or abs(now.selectivity - selectivity) > _TOLERANCE * selectivity
            or abs(now.tuple_size - size) > _TOLERANCE * size
        )

    def based_on(self, operator: OperatorView) -> Statistics:
        """Return the figures of an operator that are in use."""
        return self._based_on[operator.number]

    @cached_property
    def fragments(self) -> Mapping[int, Fragment]:
        """The fragment above each operator, by the operator's number."""
        found: dict[int, Fragment] = {}
        for operator in reversed(self._query.operators):
            figures, above = self._based_on[operator.number], readers(operator, self._based_on)
            # A split hands each tuple to one of its readers, all others hand it to every reader.
            share = 1 / len(operator.downstream) if operator.operator == "split" and above else 1.0
            cost = figures.cost_per_tuple
            selectivity = figures.selectivity if above else 1.0
            if above:
                parts = [found[reader.number] for reader in above]
                cost += figures.selectivity * share * sum(part.cost for part in parts)
                selectivity *= share * sum(part.selectivity for part in parts)
            found[operator.number] = Fragment(cost, selectivity)
        return found

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        """Operators from leaf to root with the figures that are in use: every operator is on one at least."""
        return routes(self._query, self._based_on)

    @cached_property
    def paths(self) -> tuple[Unit, ...]:
        """Operator paths with their capacities."""
        return paths(self.routes)

    @cached_property
    def segments(self) -> tuple[Unit, ...]:
        """Segments with their capacities; an operator can be part of several."""
        return segments(self.routes)

    def simplified_segments(self, gamma: float) -> tuple[Unit, ...]:
        """Simplified segments with their capacities; worked out once for each gamma."""
        if gamma not in self._simplified:
            self._simplified[gamma] = simplified_segments(self.routes, gamma)
        return self._simplified[gamma]

    @cached_property
    def slopes(self) -> Mapping[int, float]:
        """The slope of the lower envelope of the progress chart at each operator, by the operator's number.

        An operator on several routes takes the steepest: that is how fast it can free memory.
        """
        found: dict[int, float] = {}
        for route in self.routes:
            for stage, slope in zip(route, envelope(route), strict=True):
                number = stage.operator.number
                found[number] = max(slope, found.get(number, 0.0))
        return found
