"""Multicore operator lottery: tickets of operators by their share of the class priority."""

from __future__ import annotations

from mavstream_server.scheduling.bases.lottery_policy import LotteryPolicy
from mavstream_server.scheduling.policy import PolicyOptions, UnitKind
from mavstream_server.scheduling.registry import register


class MulticoreOperatorLotteryOptions(PolicyOptions):
    """`mol` has no options; it uses the random generator of the view."""


@register
class MulticoreOperatorLottery(LotteryPolicy[MulticoreOperatorLotteryOptions]):
    """Dissertation, 6.2.1, MOL: a lottery among operators; tickets Pr_class * load(operator) / cost(class).

    An operator's load is its cost per tuple times the tuples that reach it per input tuple, so that the
    operators of a class share exactly its priority; a shared operator holds the tickets of all its queries.
    A tuple waits for a draw at every operator, so that classes hardly differ.
    """

    name = "mol"
    optimises = "a baseline without a goal of its own"
    unit = UnitKind.OPERATOR
    Options = MulticoreOperatorLotteryOptions
