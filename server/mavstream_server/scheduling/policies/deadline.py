"""Deadline: least laxity first, from latency targets and measured costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from mavstream_server.scheduling.mechanisms.claimed_operators import ClaimedOperators
from mavstream_server.scheduling.mechanisms.laxity import LaxityLevel, LaxityUnit
from mavstream_server.scheduling.mechanisms.route import LEAST_COST, onward, readers_beyond
from mavstream_server.scheduling.policy import Policy, PolicyOptions, SourceService, UnitKind
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class DeadlineOptions(PolicyOptions):
    """Options of `deadline`."""

    unit: Literal["query", "operator"] = "query"
    """`query`: all ready operators of a query run together, bottom-up, so that tuples wait only once."""
    default_target_ms: Annotated[float, Field(gt=0)] = 100.0
    """Latency target in milliseconds of queries that have none and whose class has none."""
    turn_us: Annotated[int, Field(gt=0)] | None = 1500
    """Microseconds of work, by measured costs, for which a unit takes tuples in one turn; None: all that
    wait. Longer: fewer decisions and larger batches, but others wait that long for a turn to end."""
    patience_us: Annotated[int, Field(gt=0)] = 10_000
    """Microseconds of work after which a late unit gets a turn, whatever its class."""


@register
class Deadline(Policy[DeadlineOptions]):
    """After Cameo (NSDI 2021): the unit of least laxity = latency target - age of its oldest tuple - cost.

    The target is the query's, else that of its class, else `default_target_ms`. The cost is measured: one
    call of each operator up to the answer, or the work on one tuple if that is more. Everything ages alike,
    so units are ranked by their latest start, which is constant while they wait. Rows that wait in the log
    count, since sources are operators of their unit.

    A unit whose latest start has passed is late. In Cameo it would go first, which under overload makes all
    others late, too. Here it waits for units that are in time: of more important classes always, of its own
    class once they have used up a quarter of their slack, of less important ones never. Of late units the
    most important class goes first, inside it the oldest tuple.

    No unit starves: after each `patience_us` of work there is a turn for late ones, of the classes in turn,
    those of equal priority as one. So of k priorities that have late units, each gets a turn at least every
    k (`patience_us` + 2 `turn_us`), and a late tuple waits that long for each turn that late tuples of its
    priority need that are older. With full turns they get at least 13 % of the time by default.
    """

    name = "deadline"
    optimises = "the number of answers within their latency target"
    sources = SourceService.PER_CLASS
    Options = DeadlineOptions

    def __init__(self, view: View, options: DeadlineOptions) -> None:
        super().__init__(view, options)
        self.unit = UnitKind(options.unit)
        self._default_target = int(options.default_target_ms * 1_000_000)
        self._turn = None if options.turn_us is None else options.turn_us * 1000
        self._patience = options.patience_us * 1000
        self._levels: list[LaxityLevel] = []  # by descending priority
        self._units: dict[int, LaxityUnit] = {}  # by operator number
        self._claimed = ClaimedOperators()  # operators that slices of another policy may be running
        self._worked = 0  # nanoseconds of work since late units were last given a turn
        self._now = 0

    # Notifications

    def admit(self, query: QueryView) -> None:
        """Add the query's units."""
        self._claimed.admit(query)
        level = self._level(query)
        for operators in self._parts(query):
            unit = LaxityUnit(query, operators, level)
            for operator in operators:
                self._units[operator.number] = unit
        self._measure(query)

    def _parts(self, query: QueryView) -> Iterable[Sequence[OperatorView]]:
        together = self.unit is UnitKind.QUERY
        return [query.operators] if together else [(operator,) for operator in query.operators]

    def retire(self, query: QueryView) -> None:
        """Remove the query's units."""
        self._claimed.retire(query)
        for operator in query.operators:
            unit = self._units.pop(operator.number, None)
            if unit is not None and unit.ranking is not None:
                unit.ranking.remove(unit)
                unit.ranking = None

    def refreshed(self, query: QueryView) -> None:
        """Rank the query's units by their new costs."""
        self._measure(query)
        for unit in self._units_of(query):
            if unit.ranking is not None:
                unit.rank(unit.oldest)

    def reprioritised(self) -> None:
        """Rank all units by the priorities and latency targets of their classes."""
        self._levels = []
        for query in {unit.query.id: unit.query for unit in self._units.values()}.values():
            level = self._level(query)
            for unit in self._units_of(query):
                unit.level = level
                if unit.ranking is not None:
                    unit.ranking = level.in_time
            self.refreshed(query)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Rank the operator's unit, unless it is running or has an older tuple."""
        self._now = now
        self._claimed.arrived(operator)
        unit = self._units[operator.number]
        if unit.running is None:
            arrival = operator.oldest
            if arrival is None:
                arrival = now
            if unit.ranking is None:
                unit.turn = unit.whole
                unit.rank(arrival)
            elif arrival < unit.oldest:
                unit.rank(arrival)
        return False

    def may_wait(self, source: OperatorView) -> int:
        """Return a tenth of the default target while a class of another priority is late, else 0.

        A query without a target of its own would otherwise run as often as rows arrive, however few, and
        spend on fixed costs per turn what the class that is late needs.
        """
        own = self._units[source.query.operators[0].number].level  # sources may be served by the driver
        for level in self._levels:
            level.first_in_time(self._now)
            if level.late and level is not own:
                return self._default_target // 10
        return 0

    # Decisions

    def next(self, core: int, now: int) -> Slice | None:
        """Return a turn of the unit of least laxity, or of a late one."""
        self._now = now
        while (unit := self._choose(now)) is not None:
            unit.leave(now)
            slice_ = unit.turn
            if not self._claimed.all_free(unit.numbers):
                slice_ = self._claimed.without_claimed(unit.whole)
            if slice_.operators:
                unit.running = slice_.operators
                return slice_
        return None

    def _choose(self, now: int) -> LaxityUnit | None:
        if self._worked >= self._patience:
            self._worked = 0
            late = self._longest_passed_over(now)
            if late is not None:
                return late
        return self._first(now)

    def _first(self, now: int) -> LaxityUnit | None:
        first: LaxityUnit | None = None
        for level in self._levels:
            unit = level.first_in_time(now)
            if level.late and first is None and (unit is None or unit.can_wait(now)):
                return level.late.first()
            if unit is not None and (first is None or unit.latest < first.latest):
                first = unit
            if level.late:
                return first
        return first

    def _longest_passed_over(self, now: int) -> LaxityUnit | None:
        """Return the oldest late unit of the level whose late units have waited longest for a turn."""
        waiting: LaxityLevel | None = None
        for level in self._levels:
            level.first_in_time(now)
            if level.late and (waiting is None or level.last_late_turn < waiting.last_late_turn):
                waiting = level
        return None if waiting is None else waiting.late.first()

    def finished(self, slice_: Slice, report: Report) -> None:
        """Rank the unit again if it has more to do."""
        elapsed, operators = report.elapsed, slice_.operators
        self._worked += elapsed
        self._now += elapsed
        unit = self._units.get(operators[0].number)
        if unit is not None and unit.running is operators:
            unit.running = None
            unit.put_back(self._now)
            return
        # Another policy has started the slice, or the query was changed since.
        self._claimed.release(slice_)
        for operator in operators:
            unit = self._units.get(operator.number)
            if unit is not None and unit.running is None:
                unit.put_back(self._now)

    # Levels, costs and turns

    def _level(self, query: QueryView) -> LaxityLevel:
        priority = self.view.priorities.get(query.class_name, 1)
        for level in self._levels:
            if level.priority == priority:
                return level
        level = LaxityLevel(priority)
        self._levels = sorted([*self._levels, level], key=lambda one: -one.priority)
        return level

    def _units_of(self, query: QueryView) -> Iterable[LaxityUnit]:
        return dict.fromkeys(self._units[operator.number] for operator in query.operators)

    def _measure(self, query: QueryView) -> None:
        """Compute the slack and the turns of a query's units from its target and statistics."""
        target = self._default_target if query.latency_target is None else query.latency_target
        ways = {} if self.unit is UnitKind.QUERY else onward(query)
        # The tuples of a shared pipeline are answered by its members.
        members = {reader.query.id: reader.query for reader in readers_beyond(query)}.values()
        beyond = max((_cost_of_calls(member, member.operators) for member in members), default=0.0)
        for unit in self._units_of(query):
            way = ways.get(unit.number, query.operators)
            per_tuple = max(map(query.units.turn_cost, unit.bottom))
            cost = max(_cost_of_calls(query, way) + beyond, per_tuple)
            unit.slack = max(target - int(cost), 0)
            if self._turn is not None:
                tuples = max(int(self._turn / max(per_tuple, LEAST_COST)), 1)
                unit.whole = unit.whole._replace(tuples=tuples)


def _cost_of_calls(query: QueryView, operators: Sequence[OperatorView]) -> float:
    based_on = query.units.based_on
    return sum(based_on(operator).cost_per_call for operator in operators)
