"""Round robin: every ready operator gets a turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from mavstream_server.scheduling.bases.ring import RingPolicy
from mavstream_server.scheduling.policy import PolicyOptions, UnitKind
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView, Slice, View


class RoundRobinOptions(PolicyOptions):
    """Options of `rr`: the unit of a turn and its bounds; without a bound a turn takes all that waits."""

    unit: Literal["operator", "query"] = "operator"
    """`query`: all ready operators of a query run together, bottom-up, so that tuples wait only once."""
    tuples: Annotated[int, Field(gt=0)] | None = None
    """Most tuples per operator in a turn."""
    quantum_us: Annotated[int, Field(gt=0)] | None = None
    """Length of a turn in microseconds."""


@register
class RoundRobin(RingPolicy[RoundRobinOptions]):
    """MavStream thesis, 4.1.1: equal turns, bottom-up, in the order in which operators became ready.

    Operators with nothing to do are not visited; the thesis's scheduler visits them, which only adds cost.
    """

    name = "rr"
    optimises = "fairness between operators; no starvation"
    Options = RoundRobinOptions

    def __init__(self, view: View, options: RoundRobinOptions) -> None:
        super().__init__(view, options)
        self.unit = UnitKind(options.unit)

    def turns(self, query: QueryView) -> Iterable[Slice]:
        """Return one turn per operator, or one for the whole query, all with the same bounds."""
        options = self.options
        duration = None if options.quantum_us is None else options.quantum_us * 1000
        whole = (tuple(query.operators),) if options.unit == "query" else ((o,) for o in query.operators)
        return [Slice(operators, options.tuples, duration) for operators in whole]
