"""The cost model: the expected work per second of a plan, and the memory that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mavstream_protocol.hints import Hints
from mavstream_protocol.plan import InputRef
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
"""Seconds that rows wait in front of an operator: about a period of the scheduler."""


class Assessment(NamedTuple):
    """What a plan is expected to need."""

    work: float
    """Nanoseconds of work per second; a thousand million is a core."""
    memory: float
    """Bytes of state and of queues."""
    rates: Mapping[InputRef, float]
    """Rows per second, by what can be read."""
    works: Mapping[str, float]
    """Nanoseconds per second, by node."""


class CostModel:
    """Costs plans that are equivalent to one that runs, by what was measured of that.

    Predicates are taken as independent of each other and of where they stand. Reading the streams and
    writing the answers is left out: it is the same for all.
    """

    def __init__(
        self,
        running: TypedPlan | None,
        figures: PlanMetrics,
        knowledge: Knowledge | None = None,
        *,
        hints: bool = True,
    ) -> None:
        """Learn from a plan that runs, or go by what others taught.

        Where nothing was measured of a node, its `hints` are believed.
        """
        self._figures = figures
        self._hints = hints
        self._knowledge = Knowledge() if knowledge is None else knowledge
        if running is not None:
            self._walk(running, learning=True)

    @property
    def knowledge(self) -> Knowledge:
        """What was learned."""
        return self._knowledge

    def assess(self, typed: TypedPlan) -> Assessment:
        """Return what a plan is expected to need."""
        return self._walk(typed, learning=False)

    def ranks(self, typed: TypedPlan) -> Callable[[str], float]:
        """Return a function that gives the rank of a select by its name: (selectivity - 1) / cost."""
        flows = Flows(Lineage(typed), self._knowledge)

        def rank(name: str) -> float:
            node = typed.nodes[name]
            return (flows.share(name, node.predicate) - 1) / self._work(node, flows, 1.0, Flow({}, 0.0))

        return rank

    def _walk(self, typed: TypedPlan, learning: bool) -> Assessment:
        """Follow the rows bottom-up; where a node was measured, learn what it says before going on."""
        flows = Flows(Lineage(typed), self._knowledge)
        read = columns_read(typed)
        rates: dict[InputRef, float] = {}
        works: dict[str, float] = {}
        memory = 0.0
        for source in typed.sources:
            rates[InputRef(source.name, None)] = self._figures.rate(source.stream)
        for node in typed.operating:
            if not node.inputs:
                continue
            inflow = Inflow([rates[reference] for reference in node.inputs], read[node.name])
            measured = self._figures.measured(node.name)
            if learning and measured is not None:
                self._learn(node, flows, inflow, measured)
            elif learning and self._hints and node.hints is not None:
                self._believe(node, flows, inflow, node.hints)
            flow = COSTINGS[type(node)].flow(node, flows, inflow)
            rates |= {InputRef(node.name, output): rate for output, rate in flow.out.items()}
            works[node.name] = self._work(node, flows, sum(inflow.rates), flow)
            memory += _memory(node, typed, inflow, flow)
        return Assessment(sum(works.values()), memory, rates, works)

    def _work(self, node: TypedNode, flows: Flows, rate: float, flow: Flow) -> float:
        """Return the work of a node: estimated, times what measuring taught."""
        if node.predicate is None:
            return flow.work * self._knowledge.factor(node.name, COSTINGS[type(node)].kind)
        # By predicate, not by name: what was measured of a part holds in whichever select it is asked.
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

    def _believe(self, node: TypedNode, flows: Flows, inflow: Inflow, hints: Hints) -> None:
        """Use what a plan declares of a node; other nodes of its kind are not affected."""
        rate, costing = sum(inflow.rates), COSTINGS[type(node)]
        if not rate:
            return
        if hints.selectivity is not None:
            costing.learn(node, flows, inflow, hints.selectivity * rate)
        if hints.cost is not None:
            factor = hints.cost * rate / costing.flow(node, flows, inflow).work
            self._knowledge.declare_factor(node.name, factor, flows.parts(node.name, node.predicate))


def _memory(node: TypedNode, typed: TypedPlan, inflow: Inflow, flow: Flow) -> float:
    """Return the bytes that wait in front of a node, and those that it keeps."""
    sizes = []
    for place, reference in enumerate(node.inputs):
        columns = node.reads(place, inflow.read)
        below = typed.nodes[reference.node]
        declared = None if below.hints is None else below.hints.size
        sizes.append(declared or row_bytes(f for f in below.schema if f.name in columns))
    queued = sum(rate * QUEUED * size for rate, size in zip(inflow.rates, sizes, strict=True))
    rate = sum(inflow.rates)
    mean = sum(r * size for r, size in zip(inflow.rates, sizes, strict=True)) / rate if rate else 0.0
    return queued + flow.held * mean
