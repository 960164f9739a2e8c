"""Multicore operator round robin: operators run in turn, regardless of their query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.multicore_ring import MulticoreRing
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, QueryView


class MulticoreOperatorRoundRobinOptions(PolicyOptions):
    """`morr` has no options: a turn is all that waits at the operator."""


@register
class MulticoreOperatorRoundRobin(MulticoreRing[MulticoreOperatorRoundRobinOptions, CoreUnit]):
    """Dissertation, 6.2.1, MORR: operators in turn; those of one query may run on several cores.

    Tuples wait at every operator, which makes it slower than MRR; good for few, long queries.
    """

    name = "morr"
    optimises = "one query can use several cores; a baseline"
    Options = MulticoreOperatorRoundRobinOptions

    def make_unit(self, members: Sequence[Member]) -> CoreUnit:
        """Return a plain unit."""
        return CoreUnit(members)

    def parts(self, query: QueryView) -> Iterable[tuple[OperatorView, ...]]:
        """Return each operator separately."""
        return ((operator,) for operator in query.operators)
