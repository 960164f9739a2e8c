"""Multicore lottery: a query's chance of the next turn is its priority."""

from __future__ import annotations

from mavstream_server.scheduling.bases.lottery_policy import LotteryPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register


class MulticoreLotteryOptions(PolicyOptions):
    """There is nothing to choose: the seed is the view's."""


@register
class MulticoreLottery(LotteryPolicy[MulticoreLotteryOptions]):
    """Dissertation, 6.2.1, ML: a lottery at every scheduling point, and the winner runs all that waits.

    A query's tickets are its priority as MBD works it out (6.1.2), which the text leaves open: its class's,
    divided among the queries of the class by their cost. Only queries that have something to do take part.
    Follows priorities on average, but promises nothing about how long one waits.
    """

    name = "ml"
    optimises = "shares of turns by class priority, on average"
    Options = MulticoreLotteryOptions
