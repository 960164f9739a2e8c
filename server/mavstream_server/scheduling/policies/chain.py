"""Chain: run the operators on the steepest descent of queue memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, Slice


class ChainOptions(PolicyOptions):
    """Options of `chain`."""

    tuples: Annotated[int, Field(gt=0)] | None = None
    """Tuples that an operator takes per turn; None: all that wait. 1 in theory, but switching operators for
    every tuple costs more memory than the order saves."""


@register
class Chain(RankedPolicy[ChainOptions]):
    """AMoS paper, 2.1 (Babcock et al.): priority is the slope of the progress chart's lower envelope.

    The chart has x = sum of (product of the preceding selectivities x cost) and y = expected tuple size, 0
    after the last operator. Operators on one line have the same priority, and the upper one goes first:
    together they free memory, the lower ones alone only move it. An operator on several paths takes the
    steepest slope; the chart of a shared pipeline continues with those of its members, steepest first. Least
    memory in queues; long response times during bursts.
    """

    name = "chain"
    optimises = "memory in queues"
    fair = False
    Options = ChainOptions

    def priority(self, operator: OperatorView) -> float:
        """Return the slope of the lower envelope at the operator."""
        return operator.query.units.slopes[operator.number]

    def rank(self, operator: OperatorView) -> None:
        """Rank an operator by slope; ties by order of admission of the queries, then the upper operator."""
        first = operator.query.operators[0].number
        self._ready.put(operator, (-self.priority(operator), first, -operator.number))

    def turn(self, operator: OperatorView) -> Slice:
        """Return a turn of bounded length."""
        return Slice((operator,), self.options.tuples)
