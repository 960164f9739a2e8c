"""Base of policies that run units (paths, segments, simplified segments), highest capacity first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field

from mavstream_server.scheduling.mechanisms.claimed_operators import ClaimedOperators
from mavstream_server.scheduling.mechanisms.ranking import Ranking
from mavstream_server.scheduling.mechanisms.segments import AnswerMemory, Unit
from mavstream_server.scheduling.policy import Policy, PolicyOptions, UnitKind
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class UnitOptions(PolicyOptions):
    """Options of unit-level policies: when a unit counts as ready, and how long its turn is."""

    tau: Annotated[int, Field(ge=0)] = 0
    """A unit is ready when more than this many tuples wait in it. Higher: fewer decisions, longer waits."""
    drain_ms: Annotated[int, Field(gt=0)] = 100
    """A unit that holds tau tuples or fewer counts as ready after this many milliseconds."""
    quantum_us: Annotated[int, Field(gt=0)] | None = None
    """Microseconds that the first operator of a unit works in one turn; None: until its queue is empty."""


class SegmentOptions(UnitOptions):
    """Those of units, and what an answer counts for."""

    answers: AnswerMemory = AnswerMemory.HELD
    """`held`: an answer's size is not freed, as in the thesis, whose output buffer is in memory; `freed`: it
    is, since the engine hands answers to their log."""


UnitOptionsT = TypeVar("UnitOptionsT", bound=UnitOptions)


class _Turn(NamedTuple):
    """A slice, and the numbers of its operators."""

    slice: Slice
    numbers: frozenset[int]


class _RankedUnit:
    """A unit with its possible turns and its position in the rankings."""

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
        """The ranking that it is in, if something waits in it that is not being run."""
        self.since: int | None = None
        """Time since which it has held too few tuples to be ready."""
        self.due = False
        """Whether that has lasted longer than `drain_ms`."""


def _turn(slice_: Slice) -> _Turn:
    return _Turn(slice_, frozenset(operator.number for operator in slice_.operators))


class UnitPolicy(Policy[UnitOptionsT]):
    """Keeps units in heaps by capacity; subclasses define the units and the capacity.

    Thesis, 4.1.2.2: the unit of highest capacity runs, bottom-up, while it has tuples and until one of higher
    capacity has some ("or" in the text). Interpretation where the thesis leaves room:
    - A unit is ready when something waits at any of its operators, not only at the first one: tuples of a
      pruned segment wait inside another one, whose own first operator may have nothing to do.
    - With a quantum only the first operator is bounded; the others run until their queues are empty. Such a
      turn takes two decisions, one for the first operator and one for the others; a better unit can come
      in between.
    - tau (5.1.3, and the threshold against starvation of 4.1.6.4) never strands tuples and never idles a
      core: units at or below it run when no other is ready, the one that has waited longest first (also
      when a stream has ended), and after `drain_ms` they rank with the others.
    - Units that share an operator exclude each other. A core that would otherwise idle runs the operators
      of a unit that are not claimed.
    """

    fair = False
    unit = UnitKind.SEGMENT

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
        """Return the capacity by which units are ranked, highest first."""

    # Notifications

    def admit(self, query: QueryView) -> None:
        """Add the query's units."""
        self._claimed.admit(query)
        self._add_units(query)

    def retire(self, query: QueryView) -> None:
        """Remove the query's units."""
        self._remove_units(query)
        self._claimed.retire(query)

    def refreshed(self, query: QueryView) -> None:
        """Replace the query's units: both the units and their capacities may have changed."""
        self._remove_units(query)
        self._add_units(query)
        for ranked in self._units_by_query[query.id]:
            self._update(ranked)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Update the ranking of the operator's units."""
        self._now = now
        self._claimed.arrived(operator)
        for ranked in self._units_of[operator.number]:
            self._update(ranked)
        return False

    def grew(self, operator: OperatorView, now: int) -> None:
        """Update the ranking of the operator's units: they may now hold more than tau tuples."""
        self._now = now
        for ranked in self._units_of[operator.number]:
            self._update(ranked)

    def hands_over(self, lower: OperatorView, upper: OperatorView) -> bool:
        """Return whether all units that run `lower` also run `upper`; with a quantum they do not at once."""
        if self._quantum is not None:
            return False
        above = self._units_of[upper.number]
        return all(ranked in above for ranked in self._units_of[lower.number])

    # Decisions

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the unit of highest capacity."""
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
        """Update the ranking of the units that contain these operators."""
        self._claimed.release(slice_)
        ranked = self._under_way.pop(slice_.operators[0].number, None)
        if ranked is None:  # the query's units have been replaced
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

    # Rankings

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
