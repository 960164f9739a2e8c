"""Values derived from the statistics of a running query: paths, segments, rates, slopes.

They are kept for every query whichever policy is active, so a policy that takes over finds them in place
(MavStream thesis, 4.1.5), and they are recomputed only when statistics change by more than 10 %.
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
    """An operator with everything above it: total cost and selectivity of a tuple that enters there."""

    cost: float
    """Nanoseconds per tuple."""
    selectivity: float
    """Answers per tuple."""

    @property
    def rate(self) -> float:
        """The global output rate: answers per nanosecond of work."""
        return self.selectivity / self.cost if self.cost > 0 else 0.0


class QueryUnits:
    """Statistics and units of one query, computed on first use."""

    def __init__(self, query: QueryView) -> None:
        self._query = query
        self._based_on = {operator.number: operator.statistics for operator in query.operators}
        self._simplified: dict[float, tuple[Unit, ...]] = {}

    def moved(self, operator: OperatorView) -> bool:
        """Return whether an operator's statistics differ by more than 10 % from those in use."""
        _, cost, selectivity, size, _ = self._based_on[operator.number]
        now = operator.statistics
        return (
            abs(now.cost_per_tuple - cost) > _TOLERANCE * cost
            or abs(now.selectivity - selectivity) > _TOLERANCE * selectivity
            or abs(now.tuple_size - size) > _TOLERANCE * size
        )

    def based_on(self, operator: OperatorView) -> Statistics:
        """Return the statistics of an operator that the units are based on."""
        return self._based_on[operator.number]

    @cached_property
    def fragments(self) -> Mapping[int, Fragment]:
        """The fragment above each operator, by the operator's number."""
        found: dict[int, Fragment] = {}
        for operator in reversed(self._query.operators):
            figures, above = self._based_on[operator.number], readers(operator, self._based_on)
            # A split passes each tuple to one of its readers, all other operators to every reader.
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
        """Routes from leaf to root with the statistics in use; every operator is on at least one."""
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
        """Return simplified segments with their capacities; computed once for each gamma."""
        if gamma not in self._simplified:
            self._simplified[gamma] = simplified_segments(self.routes, gamma)
        return self._simplified[gamma]

    @cached_property
    def slopes(self) -> Mapping[int, float]:
        """The slope of the lower envelope of the progress chart at each operator, by the operator's number.

        An operator on several routes takes the steepest slope: that is how fast it can free memory.
        """
        found: dict[int, float] = {}
        for route in self.routes:
            for stage, slope in zip(route, envelope(route), strict=True):
                number = stage.operator.number
                found[number] = max(slope, found.get(number, 0.0))
        return found
