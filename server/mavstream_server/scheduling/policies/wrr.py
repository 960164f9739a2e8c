"""Weighted round robin: turns whose length depends on what the operator does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.ring import RingPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView, Slice

Weight = Annotated[float, Field(gt=0, le=1000)]


class WeightedRoundRobinOptions(PolicyOptions):
    """Weights by operator; an operator that is not named weighs 1."""

    tuples: Annotated[int, Field(gt=0)] = 1024
    """The turn of an operator of weight 1."""
    weights: Mapping[str, Weight] = {"join": 4.0, "aggregate": 2.0, "except": 2.0}
    leaf_bonus: Weight = 2.0
    """Factor for operators that read from a source: they are close to the data."""


@register
class WeightedRoundRobin(RingPolicy[WeightedRoundRobinOptions]):
    """MavStream thesis, 4.1.1: round robin whose quantum grows with the operator's weight.

    Joins weigh more than selections, leaves more than the operators above them.
    """

    name = "wrr"
    optimises = "throughput of costly operators; nobody starves"
    Options = WeightedRoundRobinOptions

    def turns(self, query: QueryView) -> Iterable[Slice]:
        """Return turns in proportion to the operators' weights."""
        options = self.options
        for operator in query.operators:
            weight = options.weights.get(operator.operator, 1.0)
            if operator.leaf:
                weight *= options.leaf_bonus
            yield Slice((operator,), max(1, int(options.tuples * weight)))
