"""Base of policies for several cores: units of operators, each run by one core at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from mavstream_server.scheduling.policy import Level, OptionsT, Policy, SourceService, UnitKind
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class Member(NamedTuple):
    """The part of a query in a unit: all of its operators, or one of them."""

    query: QueryView
    operators: tuple[OperatorView, ...]


class CoreUnit:
    """What one core runs at a time: a query, or queries that share operators (dissertation, 6.1.4)."""

    __slots__ = ("gone", "held", "in_line", "members", "number", "operators", "slice", "under_way")

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        # Every member lists its operators bottom-up, so the union in that order is bottom-up too.
        found = {operator.number: operator for member in members for operator in member.operators}
        self.operators = tuple(found.values())
        self.slice = Slice(self.operators)
        self.number = self.operators[0].number
        self.in_line = False
        """Whether it is among the units that the policy chooses from."""
        self.held = 0
        """Running slices that contain one of its operators; while there is one, no other core runs it."""
        self.under_way: tuple[OperatorView, ...] = ()
        """Its operators in the running slice."""
        self.gone = False

    @property
    def ready(self) -> bool:
        """Whether any of its operators is ready."""
        return self.slice.ready

    def leading_class(self, priorities: Mapping[str, int]) -> str:
        """Return the highest-priority class among its queries."""
        names = {member.query.class_name for member in self.members}
        return min(names, key=lambda name: (-priorities.get(name, 1), name))


UnitT = TypeVar("UnitT", bound=CoreUnit)


class MulticorePolicy(Policy[OptionsT], Generic[OptionsT, UnitT]):
    """Forms units, assigns them to cores and takes them back; subclasses choose the next unit.

    Units in line have something to do. Any core takes any unit, so that no core idles while a unit waits.
    """

    level = Level.QUERY
    unit = UnitKind.QUERY
    sources = SourceService.OWN_CORE

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._units: dict[int, UnitT] = {}
        self._unit_of: dict[int, UnitT] = {}  # by operator number
        self._under_way: dict[int, UnitT] = {}  # by the number of the slice's first operator

    # Hooks of subclasses

    @abstractmethod
    def make_unit(self, members: Sequence[Member]) -> UnitT:
        """Return a new unit."""

    @abstractmethod
    def enter(self, unit: UnitT) -> None:
        """Add a unit to those to choose from."""

    @abstractmethod
    def pick(self, core: int) -> UnitT | None:
        """Remove and return the next unit to run, or None."""

    def leave(self, unit: UnitT) -> None:
        """Remove a unit from those to choose from; by default `pick` skips units that are gone."""

    def turn(self, unit: UnitT) -> Slice:
        """Return the slice of a unit that was picked: by default everything that waits in it."""
        return unit.slice

    def formed(self, unit: UnitT) -> None:
        """React to a new unit."""

    def dissolved(self, unit: UnitT) -> None:
        """React to the removal of a unit."""

    def began(self, unit: UnitT, core: int) -> None:
        """React to a core starting to run a unit."""

    def ended(self, unit: UnitT, report: Report) -> None:
        """React to the end of a unit's slice."""

    def became_idle(self, unit: UnitT) -> None:
        """React to a unit that has been run and has nothing left to do."""

    # Adding and removing queries

    def admit(self, query: QueryView) -> None:
        """Form units of the query; existing units that share operators with it are merged into them."""
        together = self.unit is UnitKind.QUERY
        for operators in [tuple(query.operators)] if together else [(each,) for each in query.operators]:
            sharing = self._units_with(operators)
            members = [member for unit in sharing for member in self._dissolve(unit).members]
            unit = self._form([*members, Member(query, operators)])
            if sharing and unit.ready:
                self._line_up(unit)

    def retire(self, query: QueryView) -> None:
        """Dissolve the query's units; other queries in them form units without it."""
        for unit in self._units_with(query.operators):
            self._dissolve(unit)
            others = [member for member in unit.members if member.query is not query]
            for members in _group_sharing(others):
                successor = self._form(members)
                if successor.ready:
                    self._line_up(successor)

    def _units_with(self, operators: Iterable[OperatorView]) -> list[UnitT]:
        known = (self._unit_of.get(operator.number) for operator in operators)
        return list({unit.number: unit for unit in known if unit is not None}.values())

    def _form(self, members: Sequence[Member]) -> UnitT:
        unit = self.make_unit(members)
        self._units[unit.number] = unit
        for operator in unit.operators:
            self._unit_of[operator.number] = unit
        for running in self._under_way.values():
            unit.held += unit in self._units_with(running.under_way)
        self.formed(unit)
        return unit

    def _dissolve(self, unit: UnitT) -> UnitT:
        unit.gone = True
        if unit.in_line:
            self.leave(unit)
        del self._units[unit.number]
        for operator in unit.operators:
            del self._unit_of[operator.number]
        self.dissolved(unit)
        return unit

    # Deciding

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Add the operator's unit to those to choose from."""
        unit = self._unit_of[operator.number]
        if not unit.in_line:
            self._line_up(unit)
        return False

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the next unit."""
        unit = self.pick(core)
        if unit is None:
            return None
        slice_ = self.turn(unit)
        unit.held = 1
        unit.under_way = slice_.operators
        self._under_way[slice_.operators[0].number] = unit
        self.began(unit, core)
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Put the unit, or the units that replaced it in the meantime, back in line."""
        unit = self._under_way.pop(slice_.operators[0].number, None)
        if unit is None:  # started by another policy
            for operator in slice_.operators:
                if operator.ready:
                    self.arrived(operator, 0)
            return
        self.ended(unit, report)
        for successor in self._units_with(slice_.operators) if unit.gone else (unit,):
            successor.held -= 1
            if successor.slice.ready:
                self._line_up(successor)
            else:
                self.became_idle(successor)

    def _line_up(self, unit: UnitT) -> None:
        if not (unit.held or unit.in_line):
            unit.in_line = True
            self.enter(unit)


def _group_sharing(members: Iterable[Member]) -> list[list[Member]]:
    """Group members that share operators, directly or through other members."""
    groups: list[tuple[set[int], list[Member]]] = []
    for member in members:
        numbers = {operator.number for operator in member.operators}
        apart = [group for group in groups if group[0].isdisjoint(numbers)]
        together = [member]
        for found, others in groups:
            if not found.isdisjoint(numbers):
                numbers |= found
                together = [*others, *together]
        groups = [*apart, (numbers, together)]
    return [together for _, together in groups]
