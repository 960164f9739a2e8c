"""First in, first out: the oldest tuple is processed up to the output before a newer one starts."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.mechanisms.claimed_operators import ClaimedOperators
from mavstream_server.scheduling.mechanisms.route import onward
from mavstream_server.scheduling.policy import PolicyOptions, UnitKind
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class FirstInFirstOutOptions(PolicyOptions):
    """Options of `fifo`."""

    tuples: Annotated[int, Field(gt=0)] | None = None
    """Most tuples per turn, 1 in the papers; None: all that wait at the operator of the oldest tuple."""


class _Pipeline(NamedTuple):
    """An operator and all operators above it, up to the output."""

    slice: Slice
    numbers: frozenset[int]
    order: tuple[int, int]
    """Tie break for equally old tuples: order of admission, then the operator nearest to the output."""


@register
class FirstInFirstOut(RankedPolicy[FirstInFirstOutOptions]):
    """PRB paper, 3.4, and AMoS paper, 2.1: the operator that holds the oldest tuple, pipelined.

    The papers process single tuples, this a train. A slice is the operator and all above it, so that a train
    is carried through to the output. Of equally old tuples the one nearest to the output goes first, so that
    a bounded train is finished before the next one starts; watermarks are as old as their arrival. Even
    response times whatever operators cost, but cheap queries wait for costly ones.
    """

    name = "fifo"
    optimises = "maximum response time; no starvation"
    unit = UnitKind.PATH
    watches_growth = True  # an operator with several inputs can get a tuple older than those it has
    Options = FirstInFirstOutOptions

    def __init__(self, view: View, options: FirstInFirstOutOptions) -> None:
        super().__init__(view, options)
        self._pipelines: dict[int, _Pipeline] = {}  # by operator number
        self._claimed = ClaimedOperators()
        self._now = 0

    def priority(self, operator: OperatorView) -> float:
        """Return the negated arrival time of the oldest tuple, so that the oldest ranks first."""
        oldest = operator.oldest
        return -(self._now if oldest is None else oldest)

    def rank(self, operator: OperatorView) -> None:
        """Rank an operator by its oldest tuple."""
        self._ready.put(operator, (-self.priority(operator), *self._pipelines[operator.number].order))

    def admit(self, query: QueryView) -> None:
        """Determine the pipelines to the query's output."""
        self._claimed.admit(query)
        first = query.operators[0].number
        for number, operators in onward(query).items():
            numbers = frozenset(operator.number for operator in operators)
            self._pipelines[number] = _Pipeline(
                Slice(operators, self.options.tuples), numbers, (first, -number)
            )

    def retire(self, query: QueryView) -> None:
        """Remove the query."""
        super().retire(query)
        self._claimed.retire(query)
        for operator in query.operators:
            self._pipelines.pop(operator.number, None)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Rank the operator among the ready ones."""
        self._now = now
        self._claimed.arrived(operator)
        return super().arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Rank the operator again: an older tuple may have arrived."""
        self.rank(operator)

    def hands_over(self, lower: OperatorView, upper: OperatorView) -> bool:
        """Return True: a turn goes on to the output."""
        return True

    def next(self, core: int, now: int) -> Slice | None:
        """Return the pipeline from the oldest tuple to the output."""
        self._now = now
        while (operator := self._ready.pop()) is not None:
            # Operators above one that has run stay ranked, though they ran with it or still do.
            if operator.ready and operator not in self._claimed:
                return self.turn(operator)
        return None

    def turn(self, operator: OperatorView) -> Slice:
        """Return the operator and those above it, without operators that another core is running."""
        slice_, numbers, _ = self._pipelines[operator.number]
        if not self._claimed.all_free(numbers):
            slice_ = self._claimed.without_claimed(slice_)
            numbers = frozenset(part.number for part in slice_.operators)
        self._claimed.claim(slice_, numbers)
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Rank operators that are still ready."""
        self._claimed.release(slice_)
        super().finished(slice_, report)
