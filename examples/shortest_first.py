"""A scheduling policy of one's own: the operator with the cheapest tuples first.

It is tried in the simulator, before it is added to a server (docs/extending.md):

    PYTHONPATH=examples mavstream simulate A --policy shortest_first:ShortestFirst --utilisation 0.9
"""

from __future__ import annotations

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.view import OperatorView


class ShortestFirst(RankedPolicy[PolicyOptions]):
    """Run the ready operator whose tuples take the least time."""

    name = "shortest"
    optimises = "mean response time of cheap operators"
    fair = False
    Options = PolicyOptions

    def priority(self, operator: OperatorView) -> float:
        """Return the negative cost of a tuple, since the highest priority runs first."""
        return -operator.statistics.cost_per_tuple
