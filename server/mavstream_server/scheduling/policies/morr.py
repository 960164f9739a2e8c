"""Multicore operator round robin: operators run in turn, regardless of their query."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.multicore_ring import MulticoreRing
from mavstream_server.scheduling.policy import PolicyOptions, UnitKind
from mavstream_server.scheduling.registry import register


class MulticoreOperatorRoundRobinOptions(PolicyOptions):
    """`morr` has no options: a turn is all that waits at the operator."""


@register
class MulticoreOperatorRoundRobin(MulticoreRing[MulticoreOperatorRoundRobinOptions, CoreUnit]):
    """Dissertation, 6.2.1, MORR: operators in turn; those of one query may run on several cores.

    Tuples wait at every operator, which makes it slower than MRR; good for few, long queries.
    """

    name = "morr"
    optimises = "one query can use several cores; a baseline"
    unit = UnitKind.OPERATOR
    Options = MulticoreOperatorRoundRobinOptions

    def make_unit(self, members: Sequence[Member]) -> CoreUnit:
        """Return a plain unit."""
        return CoreUnit(members)
