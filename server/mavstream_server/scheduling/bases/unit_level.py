"""Policies that run units: paths, segments or simplified segments, the one of highest capacity first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field

from mavstream_server.scheduling.mechanisms.claimed_operators import ClaimedOperators
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


class _RankedUnit:
    """A unit as the policy keeps it."""

    __slots__ = ("due", "first", "key", "neighbours", "ranking", "since", "upper", "whole")

    def __init__(self, unit: Unit, key: tuple[Any, ...], quantum: int | None) -> None:
        operators = unit.operators
        self.key = key
        self.whole = _turn(Slice(operators))
        self.first = _turn(Slice(operators[:1], None, quantum))
        self.upper = _turn(Slice(operators[1:]))
        self.neighbours: list[_RankedUnit] = []
        """Other units that share an operator with it."""
        self.ranking: Ranking[_RankedUnit] | None = None
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
        self._units_of: dict[int, list[_RankedUnit]] = {}  # by operator number
        self._units_by_query: dict[str, list[_RankedUnit]] = {}  # by query
        self._claimed = ClaimedOperators()
        self._under_way: dict[int, _RankedUnit] = {}  # by the number of a slice's first operator
        self._ready: Ranking[_RankedUnit] = Ranking()
        self._below_tau: Ranking[_RankedUnit] = Ranking()  # units that hold tau tuples or fewer, by age
        # Units that have something to do and an operator that a slice has claimed.
        self._partly_claimed: Ranking[_RankedUnit] = Ranking()
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
        self._claimed.admit(query)
        self._add_units(query)

    def retire(self, query: QueryView) -> None:
        """Forget the query's units."""
        self._remove_units(query)
        self._claimed.retire(query)

    def refreshed(self, query: QueryView) -> None:
        """Lay out the query's units anew: they may be others, and rank elsewhere."""
        self._remove_units(query)
        self._add_units(query)
        for ranked in self._units_by_query[query.id]:
            self._update(ranked)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Let the operator's units stand where they belong now."""
        self._now = now
        self._claimed.arrived(operator)
        for ranked in self._units_of[operator.number]:
            self._update(ranked)
        return False

    def grew(self, operator: OperatorView, now: int) -> None:
        """See whether enough waits now."""
        self._now = now
        for ranked in self._units_of[operator.number]:
            self._update(ranked)

    # What is decided

    def next(self, core: int, now: int) -> Slice | None:
        """Return a turn of the unit of highest capacity."""
        self._now = now
        if self._tau:
            self._promote(now)
        ranked = self._ready.pop() or self._below_tau.pop() or self._partly_claimed.pop()
        if ranked is None:
            return None
        ranked.ranking, ranked.since, ranked.due = None, None, False
        turn = self._turn_of(ranked)
        slice_ = turn.slice
        self._claimed.claim(slice_, turn.numbers)
        self._under_way[slice_.operators[0].number] = ranked
        if turn is not ranked.whole:
            self._update(ranked)
        for neighbour in ranked.neighbours:
            self._update(neighbour)
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Let the units of these operators stand where they belong now."""
        self._claimed.release(slice_)
        ranked = self._under_way.pop(slice_.operators[0].number, None)
        if ranked is None:  # the query's units are others now
            for other in self._sharing_with(slice_.operators):
                self._update(other)
            return
        self._update(ranked)
        for neighbour in ranked.neighbours:
            self._update(neighbour)

    def _turn_of(self, ranked: _RankedUnit) -> _Turn:
        turn, claimed = ranked.whole, self._claimed
        if self._quantum is not None:
            above = ranked.upper.slice.operators
            turn = ranked.upper if any(o.ready and o not in claimed for o in above) else ranked.first
        return turn if claimed.all_free(turn.numbers) else _turn(claimed.without_claimed(turn.slice))

    def _promote(self, now: int) -> None:
        while (ranked := self._below_tau.first()) is not None:
            assert ranked.since is not None
            if now - ranked.since < self.options.drain_ms * 1_000_000:
                return
            ranked.due = True
            self._update(ranked)

    # Where units stand

    def _add_units(self, query: QueryView) -> None:
        units = self._units_by_query[query.id] = []
        for unit in self.units(query):
            self._made += 1
            key = (-self.capacity(unit), unit.operators[0].number, self._made)
            ranked = _RankedUnit(unit, key, self._quantum)
            ranked.neighbours = self._sharing_with(unit.operators)
            for neighbour in ranked.neighbours:
                neighbour.neighbours.append(ranked)
            for number in ranked.whole.numbers:
                self._units_of.setdefault(number, []).append(ranked)
            units.append(ranked)

    def _remove_units(self, query: QueryView) -> None:
        gone = self._units_by_query.pop(query.id)
        self._under_way = {first: ranked for first, ranked in self._under_way.items() if ranked not in gone}
        for ranked in gone:
            self._move(ranked, None)
            for neighbour in ranked.neighbours:
                neighbour.neighbours.remove(ranked)
            for number in ranked.whole.numbers:
                self._units_of[number].remove(ranked)
                if not self._units_of[number]:
                    del self._units_of[number]

    def _sharing_with(self, operators: Iterable[OperatorView]) -> list[_RankedUnit]:
        known = self._units_of
        return list(dict.fromkeys(ranked for o in operators for ranked in known.get(o.number, ())))

    def _update(self, ranked: _RankedUnit) -> None:
        slice_, numbers = ranked.whole
        for operator in slice_.operators:
            if operator.ready and operator not in self._claimed:
                break
        else:
            ranked.since, ranked.due = None, False
            self._move(ranked, None)
            return
        if self._claimed.overlaps(numbers):
            self._move(ranked, self._partly_claimed)
        elif ranked.due or self._enough(ranked):
            self._move(ranked, self._ready)
        else:
            self._move(ranked, self._below_tau)

    def _move(self, ranked: _RankedUnit, ranking: Ranking[_RankedUnit] | None) -> None:
        if ranking is ranked.ranking:
            return
        if ranked.ranking is not None:
            ranked.ranking.remove(ranked)
        ranked.ranking = ranking
        if ranking is self._below_tau:
            ranked.since = self._now if ranked.since is None else ranked.since
            ranking.put(ranked, (ranked.since, *ranked.key[1:]))
        elif ranking is not None:
            ranking.put(ranked, ranked.key)

    def _enough(self, ranked: _RankedUnit) -> bool:
        return not self._tau or sum(o.queued for o in ranked.whole.slice.operators) > self._tau
