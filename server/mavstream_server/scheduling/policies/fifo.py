"""First in, first out: the oldest tuple goes through to the output before a newer one begins."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.mechanisms.claimed_operators import ClaimedOperators
from mavstream_server.scheduling.mechanisms.route import onward
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class FirstInFirstOutOptions(PolicyOptions):
    """How many tuples go through together."""

    tuples: Annotated[int, Field(gt=0)] | None = None
    """At most this many, 1 in the papers; without a bound all that wait behind the oldest at its operator."""


class _Pipeline(NamedTuple):
    """How an operator's tuples get to the output."""

    slice: Slice
    numbers: frozenset[int]
    order: tuple[int, int]
    """Of operators with equally old tuples: queries as admitted, and the operator nearest to the output."""


@register
class FirstInFirstOut(RankedPolicy[FirstInFirstOutOptions]):
    """PRB paper, 3.4, and AMoS paper, 2.1: the operator that holds the oldest tuple, pipelined.

    The papers take single tuples; here it is a train. What was begun is carried through: a slice is the
    operator and all above it. Of equally old tuples the one nearest to the output is first, so that a bounded
    train is done before the next one begins; marks are as old as their arrival here. Even response times,
    whatever operators cost and give: cheap queries wait for costly ones.
    """

    name = "fifo"
    optimises = "the longest response time; nobody starves"
    watches_growth = True  # an operator with several inputs can get a tuple that is older than what it has
    Options = FirstInFirstOutOptions

    def __init__(self, view: View, options: FirstInFirstOutOptions) -> None:
        super().__init__(view, options)
        self._pipelines: dict[int, _Pipeline] = {}  # by operator number
        self._claimed = ClaimedOperators()
        self._now = 0

    def priority(self, operator: OperatorView) -> float:
        """Return how old the oldest tuple is, from the beginning of time."""
        oldest = operator.oldest
        return -(self._now if oldest is None else oldest)

    def rank(self, operator: OperatorView) -> None:
        """Put an operator where its oldest tuple belongs."""
        self._ready.put(operator, (-self.priority(operator), *self._pipelines[operator.number].order))

    def admit(self, query: QueryView) -> None:
        """Lay out the ways to the query's output."""
        self._claimed.admit(query)
        first = query.operators[0].number
        for number, operators in onward(query).items():
            numbers = frozenset(operator.number for operator in operators)
            self._pipelines[number] = _Pipeline(
                Slice(operators, self.options.tuples), numbers, (first, -number)
            )

    def retire(self, query: QueryView) -> None:
        """Forget the query."""
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
        """See whether an older tuple has come."""
        self.rank(operator)

    def next(self, core: int, now: int) -> Slice | None:
        """Return the way to the output from the oldest tuple on."""
        self._now = now
        while (operator := self._ready.pop()) is not None:
            # Those above an operator that has run stay ranked, though they ran with it or still do.
            if operator.ready and operator not in self._claimed:
                return self.turn(operator)
        return None

    def turn(self, operator: OperatorView) -> Slice:
        """Return the operator and those above it, without what another core is at work on."""
        slice_, numbers, _ = self._pipelines[operator.number]
        if not self._claimed.all_free(numbers):
            slice_ = self._claimed.without_claimed(slice_)
            numbers = frozenset(part.number for part in slice_.operators)
        self._claimed.claim(slice_, numbers)
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Rank again those that are not done."""
        self._claimed.release(slice_)
        super().finished(slice_, report)
