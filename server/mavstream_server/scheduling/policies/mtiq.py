"""Most tuples in queue: run the operator with the longest queue."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, Slice


class MostTuplesInQueueOptions(PolicyOptions):
    """Options of `mtiq`."""

    tuples: Annotated[int, Field(gt=0)] | None = None
    """Most tuples that an operator takes per turn, 1 in the paper's example; None: all that wait."""


@register
class MostTuplesInQueue(RankedPolicy[MostTuplesInQueueOptions]):
    """AMoS paper, 2.1: priority is the number of tuples that wait at all inputs of an operator.

    Ties go to the lowest operator. Long trains at low cost per tuple and short queues; tuples of slow streams
    wait until their queue is the longest, and answers come in bursts.
    """

    name = "mtiq"
    optimises = "work per decision and the longest queue"
    fair = False
    watches_growth = True
    Options = MostTuplesInQueueOptions

    def priority(self, operator: OperatorView) -> float:
        """Return the number of tuples that wait."""
        return operator.queued

    def turn(self, operator: OperatorView) -> Slice:
        """Return a turn of bounded length."""
        return Slice((operator,), self.options.tuples)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Rank the operator by its longer queue."""
        self.rank(operator)
