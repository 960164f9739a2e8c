"""Highest rate: the operator whose tuples turn into answers fastest."""

from __future__ import annotations

from mavstream_server.scheduling.bases.rate_ranked import RateOptions, RateRankedPolicy
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.scheduling.registry import register


@register
class HighestRate(RateRankedPolicy[RateOptions]):
    """CQC paper, 3 (AQSIOS): priority S_x / C_x, selectivity over cost of the fragment above operator x.

    For a shared operator, S_x and C_x are sums over the fragments above it in all its queries, without those
    that would lower the rate. The best mean response time of the policies without classes; slow and selective
    queries wait.
    """

    name = "hr"
    optimises = "mean response time over all queries"
    sources = SourceService.WHEN_IDLE
    Options = RateOptions
