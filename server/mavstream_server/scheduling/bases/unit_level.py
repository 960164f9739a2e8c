"""Policies that run units: paths, segments or simplified segments, the one of highest capacity first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field

from mavstream_server.scheduling.mechanisms.claimed_operators import Taken
from mavstream_server.scheduling.mechanisms.ranking import Ranking
from mavstream_server.scheduling.mechanisms.segments import Unit
from mavstream_server.scheduling.policy import Policy, PolicyOptions
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class UnitOptions(PolicyOptions):
    """When a unit counts as ready, and how long its turn is."""

    tau: Annotated[int, Field(ge=0)] = 0
    """A unit is ready when more than this many tuples wait in it: fewer decisions, longer waits."""
    drain_ms: Annotated[int, Field(gt=0)] = 100
    """A unit that holds tau tuples or fewer counts as ready after this time."""
    quantum_us: Annotated[int, Field(gt=0)] | None = None
    """How long the first operator of a unit works in one turn; without it, on all that waits."""


UnitOptionsT = TypeVar("UnitOptionsT", bound=UnitOptions)


class _Turn(NamedTuple):
    """A slice, and the numbers of its operators."""

    slice: Slice
    numbers: frozenset[int]


class _Place:
    """A unit as the policy keeps it."""

    __slots__ = ("due", "first", "key", "neighbours", "since", "stands", "upper", "whole")

    def __init__(self, unit: Unit, key: tuple[Any, ...], quantum: int | None) -> None:
        operators = unit.operators
        self.key = key
        self.whole = _turn(Slice(operators))
        self.first = _turn(Slice(operators[:1], None, quantum))
        self.upper = _turn(Slice(operators[1:]))
        self.neighbours: list[_Place] = []
        """Other units that share an operator with it."""
        self.stands: Ranking[_Place] | None = None
        """The one ranking that it stands in, if something waits in it that is not being run."""
        self.since: int | None = None
        """Since when it has held too little to be ready."""
        self.due = False
        """Whether that has lasted too long."""


def _turn(slice_: Slice) -> _Turn:
    return _Turn(slice_, frozenset(operator.number for operator in slice_.operators))


class UnitPolicy(Policy[UnitOptionsT]):
    """Keeps units in heaps by capacity; which units, and which capacity, subclasses say.

    Thesis, 4.1.2.2: the unit of highest capacity runs, bottom-up, while it has tuples and until one of higher
    capacity has some ("or" in the text). Readings taken:
    - A unit is ready when something waits at any of its operators, not only at the first one: a pruned
      segment's tuples wait inside another one, whose own first operator may have nothing to do.
    - With a quantum only the first operator is bounded; the others run until they are empty. Such a turn
      takes two decisions, first operator and the others; in between a better unit can come first.
    - tau (5.1.3, and the threshold against starvation of 4.1.6.4) never strands anything and never idles a
      core: units at or below it run when no other is ready, the one that has waited longest first, so also
      when a stream has ended, and after `drain_ms` they rank with the others.
    - Units that share an operator exclude each other. A core that would idle for it runs those operators of a
      unit that nobody has taken.
    """

    fair = False

    def __init__(self, view: View, options: UnitOptionsT) -> None:
        super().__init__(view, options)
        self._tau = options.tau
        self.watches_growth = self._tau > 0
        self._quantum = None if options.quantum_us is None else options.quantum_us * 1000
        self._places: dict[int, list[_Place]] = {}  # by operator number
        self._laid_out: dict[str, list[_Place]] = {}  # by query
        self._taken = Taken()
        self._under_way: dict[int, _Place] = {}  # by the number of a slice's first operator
        self._ready: Ranking[_Place] = Ranking()
        self._small: Ranking[_Place] = Ranking()  # units that hold tau tuples or fewer, by age
        self._partly: Ranking[_Place] = Ranking()  # units with something to do and an operator that is taken
        self._made = 0
        self._now = 0

    @abstractmethod
    def units(self, query: QueryView) -> Sequence[Unit]:
        """Return the units of a query: each operator in one of them at least."""

    @abstractmethod
    def capacity(self, unit: Unit) -> float:
        """Return what units are ranked by, the highest first."""

    # What is told

    def admit(self, query: QueryView) -> None:
        """Lay out the query's units."""
        self._taken.admit(query)
        self._lay_out(query)

    def retire(self, query: QueryView) -> None:
        """Forget the query's units."""
        self._clear(query)
        self._taken.retire(query)

    def refreshed(self, query: QueryView) -> None:
        """Lay out the query's units anew: they may be others, and rank elsewhere."""
        self._clear(query)
        self._lay_out(query)
        for place in self._laid_out[query.id]:
            self._settle(place)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Let the operator's units stand where they belong now."""
        self._now = now
        self._taken.told(operator)
        for place in self._places[operator.number]:
            self._settle(place)
        return False

    def grew(self, operator: OperatorView, now: int) -> None:
        """See whether enough waits now."""
        self._now = now
        for place in self._places[operator.number]:
            self._settle(place)

    # What is decided

    def next(self, core: int, now: int) -> Slice | None:
        """Return a turn of the unit of highest capacity."""
        self._now = now
        if self._tau:
            self._promote(now)
        place = self._ready.pop() or self._small.pop() or self._partly.pop()
        if place is None:
            return None
        place.stands, place.since, place.due = None, None, False
        turn = self._turn_of(place)
        slice_ = turn.slice
        self._taken.take(slice_, turn.numbers)
        self._under_way[slice_.operators[0].number] = place
        if turn is not place.whole:
            self._settle(place)
        for neighbour in place.neighbours:
            self._settle(neighbour)
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Let the units of these operators stand where they belong now."""
        self._taken.end(slice_)
        place = self._under_way.pop(slice_.operators[0].number, None)
        if place is None:  # the query's units are others now
            for other in self._touched(slice_.operators):
                self._settle(other)
            return
        self._settle(place)
        for neighbour in place.neighbours:
            self._settle(neighbour)

    def _turn_of(self, place: _Place) -> _Turn:
        turn, taken = place.whole, self._taken
        if self._quantum is not None:
            above = place.upper.slice.operators
            turn = place.upper if any(o.ready and o not in taken for o in above) else place.first
        return turn if taken.leaves(turn.numbers) else _turn(taken.free(turn.slice))

    def _promote(self, now: int) -> None:
        while (place := self._small.first()) is not None:
            assert place.since is not None
            if now - place.since < self.options.drain_ms * 1_000_000:
                return
            place.due = True
            self._settle(place)

    # Where units stand

    def _lay_out(self, query: QueryView) -> None:
        laid_out = self._laid_out[query.id] = []
        for unit in self.units(query):
            self._made += 1
            key = (-self.capacity(unit), unit.operators[0].number, self._made)
            place = _Place(unit, key, self._quantum)
            place.neighbours = self._touched(unit.operators)
            for neighbour in place.neighbours:
                neighbour.neighbours.append(place)
            for number in place.whole.numbers:
                self._places.setdefault(number, []).append(place)
            laid_out.append(place)

    def _clear(self, query: QueryView) -> None:
        gone = self._laid_out.pop(query.id)
        self._under_way = {first: place for first, place in self._under_way.items() if place not in gone}
        for place in gone:
            self._stand(place, None)
            for neighbour in place.neighbours:
                neighbour.neighbours.remove(place)
            for number in place.whole.numbers:
                self._places[number].remove(place)
                if not self._places[number]:
                    del self._places[number]

    def _touched(self, operators: Iterable[OperatorView]) -> list[_Place]:
        places = self._places
        return list(dict.fromkeys(place for o in operators for place in places.get(o.number, ())))

    def _settle(self, place: _Place) -> None:
        slice_, numbers = place.whole
        for operator in slice_.operators:
            if operator.ready and operator not in self._taken:
                break
        else:
            place.since, place.due = None, False
            self._stand(place, None)
            return
        if self._taken.overlaps(numbers):
            self._stand(place, self._partly)
        elif place.due or self._enough(place):
            self._stand(place, self._ready)
        else:
            self._stand(place, self._small)

    def _stand(self, place: _Place, ranking: Ranking[_Place] | None) -> None:
        if ranking is place.stands:
            return
        if place.stands is not None:
            place.stands.remove(place)
        place.stands = ranking
        if ranking is self._small:
            place.since = self._now if place.since is None else place.since
            ranking.put(place, (place.since, *place.key[1:]))
        elif ranking is not None:
            ranking.put(place, place.key)

    def _enough(self, place: _Place) -> bool:
        return not self._tau or sum(o.queued for o in place.whole.slice.operators) > self._tau
