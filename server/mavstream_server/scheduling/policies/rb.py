"""Rate-based: highest global output rate first, with a decision after every few tuples."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, Slice


class RateBasedOptions(PolicyOptions):
    """Options of `rb`."""

    tuples: Annotated[int, Field(gt=0)] = 64
    """Most tuples that an operator takes between two decisions. 1 in the paper, where calls are free; a live
    call costs the same for 1 tuple as for hundreds."""


@register
class RateBased(RankedPolicy[RateBasedOptions]):
    """PRB paper, 3.2: priority S_1 ... S_n / (C_1 + C_2 S_1 + ... + C_n S_n-1 ... S_1): global output rate.

    A decision is made after every few tuples of an operator, where `hr` runs whole trains. Answers come
    early; a tuple of higher rate waits for at most one short train, costly and selective paths wait long.
    """

    name = "rb"
    optimises = "mean response time over all queries, with short trains"
    fair = False
    weighs = True
    Options = RateBasedOptions

    def priority(self, operator: OperatorView) -> float:
        """Return the global output rate times the query's weight."""
        query = operator.query
        return query.weight * query.units.fragments[operator.number].rate

    def turn(self, operator: OperatorView) -> Slice:
        """Return a turn of bounded length."""
        return Slice((operator,), self.options.tuples)
