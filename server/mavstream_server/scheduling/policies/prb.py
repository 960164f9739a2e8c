"""Preemptive rate-based: as rate-based, but a tuple of higher rate preempts the running operator."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, Slice, View

_LEAST_SHARE = 0.001
"""Least remaining part of an operator's cost: one that takes longer than expected must not outrank those
above it."""


class PreemptiveRateBasedOptions(PolicyOptions):
    """Options of `prb`."""

    tuples: Annotated[int, Field(gt=0)] = 64
    """Most tuples that an operator takes between two decisions: 1 in the paper, more makes a train."""


class _Running(NamedTuple):
    """A running operator."""

    operator: OperatorView
    progress: int
    """Nanoseconds of work done on the head of its queue when it started."""
    began: int
    """Time when it started."""


@register
class PreemptiveRateBased(RankedPolicy[PreemptiveRateBasedOptions]):
    """PRB paper, 3.3: global output rate of `rb` with C_1 - delta instead of C_1, where delta is work done.

    delta is the work on the tuple at the head of the queue. For a train it is the work on those of its tuples
    that are done; C_1 is reduced by their share of done and waiting tuples, because the length of the head
    is not known. A tuple that arrives at a leaf asks for a decision if it outranks a running operator, with
    delta counted up to now. Operators above always outrank those below, so one remainder per operator is
    enough. The best mean response time where costs are skewed; costly paths wait even longer than with `rb`.
    """

    name = "prb"
    optimises = "mean response time over all queries, where costs are skewed"
    fair = False
    Options = PreemptiveRateBasedOptions

    def __init__(self, view: View, options: PreemptiveRateBasedOptions) -> None:
        super().__init__(view, options)
        self._running: dict[int, _Running] = {}  # by operator number; one per core
        self._now = 0

    def priority(self, operator: OperatorView) -> float:
        """Return the global output rate of the remaining work."""
        return self._rate(operator, operator.progress)

    def _rate(self, operator: OperatorView, delta: int) -> float:
        units = operator.query.units
        fragment = units.fragments[operator.number]
        if not delta:
            return fragment.rate
        cost = units.based_on(operator).cost_per_tuple
        if self.options.tuples == 1:
            left = cost - delta
        else:
            work = operator.queued * cost
            left = cost * work / (work + delta)
        return fragment._replace(cost=fragment.cost - cost + max(left, _LEAST_SHARE * cost)).rate

    def turn(self, operator: OperatorView) -> Slice:
        """Return a turn of bounded length, and record when it started."""
        self._running[operator.number] = _Running(operator, operator.progress, self._now)
        return Slice((operator,), self.options.tuples)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Rank the operator; return True if it is a leaf and outranks a running operator."""
        self.rank(operator)
        if not self._running or not (operator.leaf or operator.kind is OperatorKind.SOURCE):
            return False
        rate = self.priority(operator)
        return any(
            rate > self._rate(running.operator, running.progress + now - running.began)
            for running in self._running.values()
        )

    def next(self, core: int, now: int) -> Slice | None:
        """Return a turn of the operator of highest rate."""
        self._now = now
        return super().next(core, now)

    def finished(self, slice_: Slice, report: Report) -> None:
        """Rank the operator by its remaining work, if it is still ready."""
        self._running.pop(slice_.operators[0].number, None)
        super().finished(slice_, report)

    def retire(self, query: QueryView) -> None:
        """Remove the query's operators, including running ones."""
        super().retire(query)
        for operator in query.operators:
            self._running.pop(operator.number, None)
