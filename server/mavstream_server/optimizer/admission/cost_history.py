"""Cost history: operator costs and selectivities measured on running queries, used to estimate new ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.metrics import OperatorMetrics
from mavstream_server.optimizer.admission.load import Arrivals
from mavstream_server.planning.rewriting.costing.knowledge import DerivedKnowledge, PooledKnowledge
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.costing.model import Assessment, CostModel
from mavstream_server.scheduling.statistics import Statistics

CALL_NS = 10_000.0
"""Minimum cost of one operator call, in nanoseconds, however few rows it processes."""
_DEFAULT_END_COSTS = {"source": 20.0, "output": 100.0}
"""Default cost of sources and outputs, in nanoseconds per row, until one has been measured."""
_REMEMBERED = 101


class Demand(NamedTuple):
    """Estimated resource demand of a query."""

    rows: float
    """Rows per second, summed over all streams of the query."""
    turns: float
    """Turns (scheduler slices) per second; at most one per arriving frame."""
    work: float
    """Engine time, in seconds per second."""
    memory: float
    """Bytes held in windows and queues."""
    row_bytes: float
    """Size of a row that waits in the query's input, in bytes."""


class CostHistory:
    """Median cost per kind of operator and median selectivity of conditions, learned from running queries."""

    def __init__(self) -> None:
        self._knowledge = PooledKnowledge()
        self._end_costs = {kind: deque[float](maxlen=_REMEMBERED) for kind in _DEFAULT_END_COSTS}

    def learn(
        self, plan: TypedPlan, operators: Sequence[OperatorMetrics], rates: Mapping[str, float]
    ) -> None:
        """Add the metrics of a running query; `rates` are the rows per second of its streams."""
        measured = [one for one in operators if one.tuples > 0 and one.cost_per_tuple_ns > 0]
        for one in measured:
            if one.operator in _DEFAULT_END_COSTS:
                self._end_costs[one.operator].append(one.cost_per_tuple_ns)
        known = {
            one.name: Statistics(
                cost_per_tuple=one.cost_per_tuple_ns, selectivity=one.selectivity, tuples=one.tuples
            )
            for one in measured
        }
        # Measured values only: the hints of one query do not apply to others.
        self._knowledge.pool(CostModel(plan, PlanMetrics(rates, known), hints=False).knowledge)

    def assess(self, plan: TypedPlan, arrivals: Mapping[str, Arrivals]) -> Demand:
        """Estimate the demand of a new query, given the arrival rates of its streams."""
        read = [arrivals.get(source.stream, Arrivals(0.0, 0.0)) for source in plan.sources]
        rows, turns = sum(one.rows for one in read), sum(min(one.frames, one.rows) for one in read)
        assessed = self.operators(plan, arrivals)
        least = turns * CALL_NS
        works = [
            *assessed.works.values(),
            *(one.rows * self._end_cost("source") for one in read),
            assessed.rates[plan.root] * self._end_cost("output"),
        ]
        width = max((len(source.schema.fields) for source in plan.sources), default=0)
        return Demand(
            rows, turns, sum(max(work, least) for work in works) / 1e9, assessed.memory, 8.0 * width
        )

    def operators(self, plan: TypedPlan, arrivals: Mapping[str, Arrivals]) -> Assessment:
        """Estimate the rows and the work per second of each operator of a new query."""
        none = Arrivals(0.0, 0.0)
        rates = {source.stream: arrivals.get(source.stream, none).rows for source in plan.sources}
        return self._model(plan, PlanMetrics(rates)).assess(plan)

    def without_conditions(self) -> CostHistory:
        """Return a small copy that knows the costs of operators, but not the selectivities of conditions."""
        copy = CostHistory()
        copy._knowledge = self._knowledge.without_conditions()
        copy._end_costs = {kind: deque(costs, _REMEMBERED) for kind, costs in self._end_costs.items()}
        return copy

    def _model(self, plan: TypedPlan, metrics: PlanMetrics) -> CostModel:
        """Return a cost model that prefers the plan's own hints and falls back to the learned costs."""
        if all(node.hints is None for node in plan.nodes.values()):
            return CostModel(None, metrics, self._knowledge)
        return CostModel(plan, metrics, DerivedKnowledge(self._knowledge))

    def _end_cost(self, kind: str) -> float:
        known = self._end_costs.get(kind)
        return median(known) if known else _DEFAULT_END_COSTS[kind]
