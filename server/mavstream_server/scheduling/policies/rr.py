"""Round robin: every operator that has something to do gets its turn."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.ring import RingPolicy
from mavstream_server.scheduling.view import OperatorView, Slice


class RoundRobinOptions(PolicyOptions):
    """How long a turn is; without a bound an operator runs until its queues are empty."""

    tuples: Annotated[int, Field(gt=0)] | None = None
    quantum_us: Annotated[int, Field(gt=0)] | None = None


class RoundRobin(RingPolicy[RoundRobinOptions]):
    """MavStream thesis, 4.1.1: equal turns, bottom-up, in the order in which operators became ready.

    Operators with nothing to do are not visited; the thesis's scheduler visits them, which only costs.
    """

    name = "rr"
    optimises = "nothing in particular; nobody starves"
    Options = RoundRobinOptions

    def turn(self, operator: OperatorView) -> Slice:
        """Return the same turn for everybody."""
        options = self.options
        duration = None if options.quantum_us is None else options.quantum_us * 1000
        return Slice((operator,), options.tuples, duration)
