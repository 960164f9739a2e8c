"""Multicore round robin: queries run in turn, regardless of their class."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.multicore_ring import MulticoreRing
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register


class MulticoreRoundRobinOptions(PolicyOptions):
    """`mrr` has no options: a turn is all that waits in the query."""


@register
class MulticoreRoundRobin(MulticoreRing[MulticoreRoundRobinOptions, CoreUnit]):
    """Dissertation, 6.2.1, MRR: queries in turn, each from its leaves to its output, on all that waits.

    Queries that share operators are one unit. Good for the mean over all queries; ignores classes.
    """

    name = "mrr"
    optimises = "mean response time on several cores; no starvation"
    Options = MulticoreRoundRobinOptions

    def make_unit(self, members: Sequence[Member]) -> CoreUnit:
        """Return a plain unit."""
        return CoreUnit(members)
