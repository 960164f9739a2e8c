"""Highest rate: the operator whose tuples turn into answers fastest."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions, SourceService
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, Slice


class HighestRateOptions(PolicyOptions):
    """Options of `hr`."""

    tuples: Annotated[int, Field(gt=0)] | None = None
    """Most tuples that an operator takes per turn; None: all that wait."""


@register
class HighestRate(RankedPolicy[HighestRateOptions]):
    """CQC paper, 3 (AQSIOS): priority S_x / C_x, selectivity over cost of the fragment above operator x.

    For a shared operator, S_x and C_x are sums over the fragments above it in all its queries, without those
    that would lower the rate. The best mean response time of the policies without classes; slow and selective
    queries wait.
    """

    name = "hr"
    optimises = "mean response time over all queries"
    fair = False
    weighs = True
    sources = SourceService.WHEN_IDLE
    Options = HighestRateOptions

    def priority(self, operator: OperatorView) -> float:
        """Return the global output rate times the query's weight."""
        query = operator.query
        return query.weight * query.units.fragments[operator.number].rate

    def turn(self, operator: OperatorView) -> Slice:
        """Return a turn of bounded length."""
        return Slice((operator,), self.options.tuples)
