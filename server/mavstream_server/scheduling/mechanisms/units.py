"""Values derived from the statistics of a running query: paths, segments, rates, slopes.

They are kept for every query whichever policy is active, so a policy that takes over finds them in place
(MavStream thesis, 4.1.5), and they are recomputed only when statistics change by more than 10 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from mavstream_server.scheduling.mechanisms.fragment import Fragment, fragments_inside, with_members
from mavstream_server.scheduling.mechanisms.progress_chart import envelope, merged_descents
from mavstream_server.scheduling.mechanisms.ratio import Work, with_best
from mavstream_server.scheduling.mechanisms.route import LEAST_COST, Route, readers_beyond, routes
from mavstream_server.scheduling.mechanisms.segments import (
    AnswerMemory,
    Unit,
    paths,
    segments,
    simplified_segments,
)
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorView, QueryView

_TOLERANCE = 0.1


class QueryUnits:
    """Statistics and units of one query, computed on first use."""

    def __init__(self, query: QueryView) -> None:
        self._query = query
        self._based_on = {operator.number: operator.statistics for operator in query.operators}
        self._segments: dict[AnswerMemory, tuple[Unit, ...]] = {}
        self._simplified: dict[tuple[float, AnswerMemory], tuple[Unit, ...]] = {}

    def moved(self, operator: OperatorView) -> bool:
        """Return whether an operator's statistics differ by more than 10 % from those in use."""
        _, cost, selectivity, size, _, input_size = self._based_on[operator.number]
        now = operator.statistics
        return (
            abs(now.cost_per_tuple - cost) > _TOLERANCE * cost
            or abs(now.selectivity - selectivity) > _TOLERANCE * selectivity
            or abs(now.tuple_size - size) > _TOLERANCE * size
            or abs(now.input_size - input_size) > _TOLERANCE * input_size
        )

    def based_on(self, operator: OperatorView) -> Statistics:
        """Return the statistics of an operator that the units are based on."""
        return self._based_on[operator.number]

    @cached_property
    def fragments(self) -> Mapping[int, Fragment]:
        """The fragment above each operator, by operator number; includes the members of a shared pipeline."""
        inside, members = self._inside, self._members
        if not members:
            return inside
        return {number: with_members(prefix, members) for number, prefix in inside.items()}

    @cached_property
    def _inside(self) -> dict[int, Fragment]:
        return fragments_inside(self._query, self._based_on)

    @cached_property
    def _members(self) -> list[Fragment]:
        """The fragments of members above a shared pipeline, the highest rate first; empty otherwise."""
        above = (reader.query.units.fragments[reader.number] for reader in readers_beyond(self._query))
        return sorted(above, key=lambda fragment: -fragment.rate)

    @cached_property
    def rate(self) -> float:
        """The highest output rate of a tuple that enters the query."""
        return max(self.fragments[path[0].number].rate for path in self._query.paths)

    def turn_cost(self, operator: OperatorView) -> float:
        """Return what a tuple that enters an operator costs at most in one turn (ns).

        Members of a shared pipeline have turns of their own, of which the most costly one counts.
        """
        inside = self._inside[operator.number]
        members = (reader.query.units.turn_cost(reader) for reader in readers_beyond(self._query))
        return max(inside.cost, inside.selectivity * max(members, default=0.0))

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        """Routes from leaf to root with the statistics in use; every operator is on at least one."""
        return routes(self._query, self._based_on, [route[0].size_in for route in self._beyond])

    @cached_property
    def _beyond(self) -> list[Route]:
        """The routes of members that begin above a shared pipeline."""
        return [reader.query.units.route_from(reader) for reader in readers_beyond(self._query)]

    def route_from(self, operator: OperatorView) -> Route:
        """Return the first route through an operator, from there on."""
        for route in self.routes:
            for place, stage in enumerate(route):
                if stage.operator is operator:
                    return route[place:]
        raise LookupError(f"operator {operator.number} is on no route of query {self._query.id!r}")

    @cached_property
    def paths(self) -> tuple[Unit, ...]:
        """Operator paths with their capacities.

        A tuple that goes through a shared pipeline counts for each member, and costs what it costs in all of
        them: a pipeline with one member has the capacity of the member's whole path.
        """
        found = paths(self.routes)
        if not self._members:
            return found
        return tuple(unit._replace(processing=self._capacity(unit)) for unit in found)

    def _capacity(self, unit: Unit) -> float:
        passed = self._inside[unit.operators[0].number].selectivity
        costs = sorted(max(passed * member.cost, LEAST_COST) for member in self._members)
        return with_best(Work(0.0, 1 / unit.processing), (Work(1.0, cost) for cost in costs)).ratio

    def segments(self, answers: AnswerMemory = AnswerMemory.HELD) -> tuple[Unit, ...]:
        """Return segments with their capacities; an operator can be part of several."""
        if answers not in self._segments:
            self._segments[answers] = segments(self.routes, answers, self._beyond)
        return self._segments[answers]

    def simplified_segments(
        self, gamma: float, answers: AnswerMemory = AnswerMemory.HELD
    ) -> tuple[Unit, ...]:
        """Return simplified segments with their capacities; computed once for each gamma."""
        if (gamma, answers) not in self._simplified:
            found = simplified_segments(self.routes, gamma, answers, self._beyond)
            self._simplified[gamma, answers] = found
        return self._simplified[gamma, answers]

    @cached_property
    def slopes(self) -> Mapping[int, float]:
        """The slope of the lower envelope of the progress chart at each operator, by the operator's number.

        An operator on several routes takes the steepest slope: that is how fast it can free memory.
        """
        above = merged_descents(self._beyond)
        found: dict[int, float] = {}
        for route in self.routes:
            for stage, slope in zip(route, envelope(route, above), strict=True):
                number = stage.operator.number
                found[number] = max(slope, found.get(number, 0.0))
        return found
