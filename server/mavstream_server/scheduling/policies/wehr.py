"""Weighted highest rate: output rate of operators times class priority."""

from __future__ import annotations

from mavstream_server.scheduling.policies.hr import HighestRate
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView


@register
class WeightedHighestRate(HighestRate):
    """CQC paper, 4.1 (dissertation, 5.3): priority P x S_x / C_x, the rate of HR times the class's priority.

    Good when higher classes are light and rates are similar. Otherwise it inverts classes, because an
    operator of class N runs before one of class H if its rate is more than P_H / P_N times as high, and low
    classes starve.
    """

    name = "wehr"
    optimises = "response time weighted by class priority, at the cost of low classes"

    def priority(self, operator: OperatorView) -> float:
        """Return the global output rate, weighted by the priority of the operator's class."""
        return super().priority(operator) * self.view.priorities.get(operator.query.class_name, 1)

    def reprioritised(self) -> None:
        """Rank all ready operators by the new priorities."""
        for query in self.view.queries.values():
            self.refreshed(query)
