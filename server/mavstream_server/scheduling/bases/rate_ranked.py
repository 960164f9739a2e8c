"""Base of policies that rank by global output rate: answers per unit of work."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from mavstream_server.scheduling.bases.ranked import RankedPolicy
from mavstream_server.scheduling.policy import PolicyOptions, UnitKind
from mavstream_server.scheduling.view import OperatorView, Slice, View


class RateOptions(PolicyOptions):
    """Options of policies that rank by output rate."""

    unit: Literal["operator", "query"] = "operator"
    """`query`: all ready operators of a query run together, bottom-up, ranked by the query's highest rate."""
    tuples: Annotated[int, Field(gt=0)] | None = None
    """Most tuples that an operator takes per turn; None: all that wait."""


RateOptionsT = TypeVar("RateOptionsT", bound=RateOptions)


class RateRankedPolicy(RankedPolicy[RateOptionsT]):
    """Runs what has the highest global output rate, weighted by the query's weight."""

    fair = False
    weighs = True

    def __init__(self, view: View, options: RateOptionsT) -> None:
        super().__init__(view, options)
        self.unit = UnitKind(options.unit)

    def priority(self, operator: OperatorView) -> float:
        """Return the output rate above an operator, or the highest of a query, times the query's weight."""
        query = operator.query
        if self.unit is UnitKind.QUERY:
            return query.weight * query.units.rate
        return query.weight * query.units.fragments[operator.number].rate

    def turn(self, operator: OperatorView) -> Slice:
        """Return a turn of bounded length, of the operator or of its whole query."""
        tuples = self.options.tuples
        if self.unit is UnitKind.OPERATOR:
            return Slice((operator,), tuples)
        return Slice(tuple(operator.query.operators), tuples)
