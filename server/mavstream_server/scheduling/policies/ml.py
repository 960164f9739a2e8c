"""Multicore lottery: the probability that a query runs next is proportional to its priority."""

from __future__ import annotations

from mavstream_server.scheduling.bases.lottery_policy import LotteryPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register


class MulticoreLotteryOptions(PolicyOptions):
    """`ml` has no options; it uses the random generator of the view."""


@register
class MulticoreLottery(LotteryPolicy[MulticoreLotteryOptions]):
    """Dissertation, 6.2.1, ML: a lottery at every scheduling point; the winner runs all that waits.

    A query's tickets are its priority as computed by MBD (6.1.2), which the text leaves open: that of its
    class, divided among the queries of the class by their cost. Only queries with work take part. Follows
    priorities on average, but does not bound waiting times.
    """

    name = "ml"
    optimises = "shares of turns by class priority, on average"
    Options = MulticoreLotteryOptions
