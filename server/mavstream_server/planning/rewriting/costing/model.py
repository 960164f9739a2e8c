"""The cost model: estimates the work per second and the memory of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.planning.rewriting.costing.estimates import BASE_COSTS, evaluation_cost, row_bytes
from mavstream_server.planning.rewriting.costing.flows import Flow, Flows
from mavstream_server.planning.rewriting.costing.knowledge import Knowledge
from mavstream_server.planning.rewriting.costing.lineage import Lineage
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.costing.operators import COSTINGS, Inflow
from mavstream_server.planning.rewriting.expressions import conjuncts
from mavstream_server.planning.rewriting.reading import columns_read
from mavstream_server.scheduling.statistics import Statistics

QUEUED = 0.01
"""The time (s) that rows spend in the queue of an operator: about a period of the scheduler."""


class Assessment(NamedTuple):
    """The expected work and memory of a plan."""

    work: float
    """Nanoseconds of work per second; 1e9 is one core."""
    memory: float
    """Bytes of state and queues."""
    rates: Mapping[InputRef, float]
    """Rows per second, by output of a node."""
    works: Mapping[str, float]
    """Nanoseconds of work per second, by node."""


class CostModel:
    """Estimates the costs of plans that are equivalent to a running one, from the metrics of that one.

    Predicates are assumed to be independent of each other and of their position in the plan. Reading the
    streams and writing the answers is not included: it costs the same in all of them.
    """

    def __init__(
        self,
        running: TypedPlan | None,
        metrics: PlanMetrics,
        knowledge: Knowledge | None = None,
        *,
        hints: bool = True,
    ) -> None:
        """Learn from the metrics of a running plan, or use given knowledge.

        With `hints`, the hints of a plan are used for nodes that were not measured.
        """
        self._metrics = metrics
        self._hints = hints
        self._knowledge = Knowledge() if knowledge is None else knowledge
        if running is not None:
            self._walk(running, learning=True)

    @property
    def knowledge(self) -> Knowledge:
        """The selectivities and cost factors that were learned."""
        return self._knowledge

    def assess(self, typed: TypedPlan) -> Assessment:
        """Return the expected work and memory of a plan."""
        return self._walk(typed, learning=False)

    def ranks(self, typed: TypedPlan) -> Callable[[str], float]:
        """Return a function from the name of a select to its rank: (selectivity - 1) / cost."""
        flows = Flows(Lineage(typed), self._knowledge)

        def rank(name: str) -> float:
            node = typed.nodes[name]
            return (flows.share(name, node.predicate) - 1) / self._work(node, flows, 1.0, Flow({}, 0.0))

        return rank

    def _walk(self, typed: TypedPlan, learning: bool) -> Assessment:
        """Compute the flows bottom-up; when learning, learn from each measured node before its readers."""
        flows = Flows(Lineage(typed), self._knowledge)
        read = columns_read(typed)
        rates: dict[InputRef, float] = {}
        works: dict[str, float] = {}
        memory = 0.0
        for source in typed.sources:
            rates[InputRef(source.name, None)] = self._metrics.rate(source.stream)
        for node in typed.operating:
            if not node.inputs:
                continue
            inflow = Inflow([rates[reference] for reference in node.inputs], read[node.name])
            measured = self._metrics.measured(node.name)
            if learning and measured is not None:
                self._learn(node, flows, inflow, measured)
            elif learning and self._hints and node.hints is not None:
                self._apply_hints(node, flows, inflow, node.hints)
            flow = COSTINGS[type(node)].flow(node, flows, inflow)
            rates |= {InputRef(node.name, output): rate for output, rate in flow.out.items()}
            works[node.name] = self._work(node, flows, sum(inflow.rates), flow)
            memory += _memory(node, typed, inflow, flow)
        return Assessment(sum(works.values()), memory, rates, works)

    def _work(self, node: TypedNode, flows: Flows, rate: float, flow: Flow) -> float:
        """Return the work of a node (ns per second): the estimate times the learned factor."""
        if node.predicate is None:
            return flow.work * self._knowledge.factor(node.name, COSTINGS[type(node)].kind)
        # By predicate, not by name: the measured cost of a conjunct applies in any select that evaluates it.
        factors = [self._knowledge.predicate_factor(p) for p in flows.parts(node.name, node.predicate)]
        costs = [evaluation_cost(part) for part in conjuncts(node.predicate)]
        base = BASE_COSTS["select"] * sum(factors) / len(factors)
        return rate * (base + sum(cost * factor for cost, factor in zip(costs, factors, strict=True)))

    def _learn(self, node: TypedNode, flows: Flows, inflow: Inflow, measured: Statistics) -> None:
        rate, costing = sum(inflow.rates), COSTINGS[type(node)]
        if not rate:
            return
        costing.learn(node, flows, inflow, measured.selectivity * rate)
        factor = measured.cost_per_tuple * rate / costing.flow(node, flows, inflow).work
        parts = flows.parts(node.name, node.predicate)
        self._knowledge.learn_factor(node.name, costing.kind, factor, parts)

    def _apply_hints(self, node: TypedNode, flows: Flows, inflow: Inflow, hints: Hints) -> None:
        """Use the hints of a node; other nodes of its kind are not affected."""
        rate, costing = sum(inflow.rates), COSTINGS[type(node)]
        if not rate:
            return
        if hints.selectivity is not None:
            costing.learn(node, flows, inflow, hints.selectivity * rate)
        if hints.cost is not None:
            factor = hints.cost * rate / costing.flow(node, flows, inflow).work
            self._knowledge.declare_factor(node.name, factor, flows.parts(node.name, node.predicate))


def _memory(node: TypedNode, typed: TypedPlan, inflow: Inflow, flow: Flow) -> float:
    """Return the bytes in the queues and the state of a node."""
    sizes = []
    for port, reference in enumerate(node.inputs):
        columns = node.reads(port, inflow.read)
        below = typed.nodes[reference.node]
        declared = None if below.hints is None else below.hints.size
        sizes.append(declared or row_bytes(f for f in below.schema if f.name in columns))
    queued = sum(rate * QUEUED * size for rate, size in zip(inflow.rates, sizes, strict=True))
    rate = sum(inflow.rates)
    mean = sum(r * size for r, size in zip(inflow.rates, sizes, strict=True)) / rate if rate else 0.0
    return queued + flow.held * mean
