"""Multicore operator lottery: an operator's chance of the next turn is its part of its class's priority."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_server.scheduling.bases.lottery_policy import LotteryPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, QueryView


class MulticoreOperatorLotteryOptions(PolicyOptions):
    """There is nothing to choose: the seed is the view's."""


@register
class MulticoreOperatorLottery(LotteryPolicy[MulticoreOperatorLotteryOptions]):
    """Dissertation, 6.2.1, MOL: a lottery among operators; tickets Pr_class * load(operator) / cost(class).

    An operator's load is its cost per tuple times the tuples that reach it for each that enters, so that
    the operators of a class share just its priority; a shared one holds the tickets of all its queries.
    A tuple waits for luck at every operator, so that classes hardly differ.
    """

    name = "mol"
    optimises = "nothing in particular; a baseline"
    Options = MulticoreOperatorLotteryOptions

    def parts(self, query: QueryView) -> Iterable[tuple[OperatorView, ...]]:
        """Return every operator for itself."""
        return ((operator,) for operator in query.operators)
