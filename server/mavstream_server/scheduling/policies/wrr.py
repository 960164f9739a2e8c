"""Weighted round robin: the length of a turn depends on the kind of operator."""

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
    """Options of `wrr`: weights by kind of operator."""

    tuples: Annotated[int, Field(gt=0)] = 1024
    """Most tuples in a turn of an operator of weight 1."""
    weights: Mapping[str, Weight] = {"join": 4.0, "aggregate": 2.0, "distinct": 2.0, "except": 2.0}
    """Weight by kind of operator; 1 for kinds that are not listed."""
    leaf_bonus: Weight = 2.0
    """Factor for operators that read from a source: they are close to the data."""


@register
class WeightedRoundRobin(RingPolicy[WeightedRoundRobinOptions]):
    """MavStream thesis, 4.1.1: round robin whose quantum grows with the operator's weight.

    Joins weigh more than selections, leaves more than the operators above them.
    """

    name = "wrr"
    optimises = "throughput of costly operators; no starvation"
    Options = WeightedRoundRobinOptions

    def turns(self, query: QueryView) -> Iterable[Slice]:
        """Return turns in proportion to the operators' weights."""
        options = self.options
        for operator in query.operators:
            weight = options.weights.get(operator.operator, 1.0)
            if operator.leaf:
                weight *= options.leaf_bonus
            yield Slice((operator,), max(1, int(options.tuples * weight)))
