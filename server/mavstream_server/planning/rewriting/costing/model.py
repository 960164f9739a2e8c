"""The cost model: the expected work per second of a plan, and the memory that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mavstream_protocol.plan import InputRef
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedSelect,
    TypedSource,
    TypedSplit,
    TypedTable,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_server.planning.rewriting.costing.estimates import BASE_COSTS, evaluation_cost, row_bytes
from mavstream_server.planning.rewriting.costing.flows import Flow, Flows
from mavstream_server.planning.rewriting.costing.knowledge import Knowledge
from mavstream_server.planning.rewriting.costing.lineage import Lineage
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.expressions import conjuncts
from mavstream_server.planning.rewriting.reading import columns_read, reads
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
        self, running: TypedPlan | None, figures: PlanMetrics, knowledge: Knowledge | None = None
    ) -> None:
        """Learn from a plan that runs, or go by what others taught."""
        self._figures = figures
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
            assert isinstance(node, TypedSelect)
            return (flows.share(name, node.where) - 1) / self._work(node, flows, 1.0, Flow({}, 0.0))

        return rank

    def _walk(self, typed: TypedPlan, learning: bool) -> Assessment:
        """Follow the rows bottom-up; where a node was measured, learn what it says before going on."""
        flows = Flows(Lineage(typed), self._knowledge)
        read = columns_read(typed)
        rates: dict[InputRef, float] = {}
        works: dict[str, float] = {}
        memory = 0.0
        for node in typed.nodes.values():
            if isinstance(node, TypedSource):
                rates[InputRef(node.name, None)] = self._figures.rate(node.stream)
            if isinstance(node, TypedSource | TypedTable):
                continue
            inflow = [rates[reference] for reference in node.inputs]
            measured = self._figures.measured(node.name)
            if learning and measured is not None:
                self._learn(node, flows, inflow, read[node.name], measured)
            flow = flows.flow(node, inflow, read[node.name])
            rates |= {InputRef(node.name, output): rate for output, rate in flow.out.items()}
            works[node.name] = self._work(node, flows, sum(inflow), flow)
            memory += _memory(node, typed, inflow, flow, read[node.name])
        return Assessment(sum(works.values()), memory, rates, works)

    def _work(self, node: TypedNode, flows: Flows, rate: float, flow: Flow) -> float:
        """Return the work of a node: estimated, times what measuring taught."""
        if not isinstance(node, TypedSelect):
            return flow.work * self._knowledge.factor(node.name, kind_of(node))
        # By predicate, not by name: what was measured of a part holds in whichever select it is asked.
        factors = [self._knowledge.predicate_factor(part) for part in flows.parts(node.name, node.where)]
        costs = [evaluation_cost(part) for part in conjuncts(node.where)]
        base = BASE_COSTS["select"] * sum(factors) / len(factors)
        return rate * (base + sum(cost * factor for cost, factor in zip(costs, factors, strict=True)))

    def _learn(
        self, node: TypedNode, flows: Flows, inflow: list[float], read: frozenset[str], measured: Statistics
    ) -> None:
        rate = sum(inflow)
        if not rate:
            return
        learn_rows(node, flows, inflow, measured.selectivity * rate, read)
        estimated = flows.flow(node, inflow, read).work
        parts = flows.parts(node.name, node.where) if isinstance(node, TypedSelect) else []
        factor = measured.cost_per_tuple * rate / estimated
        self._knowledge.learn_factor(node.name, kind_of(node), factor, parts)


def learn_rows(node: TypedNode, flows: Flows, inflow: list[float], out: float, read: frozenset[str]) -> None:
    """Keep what a node gave, in rows per second, by what decides about it."""
    knowledge = flows.knowledge
    match node:
        case TypedSelect():
            knowledge.learn_selectivity(flows.parts(node.name, node.where), out / inflow[0])
        case TypedAggregate() | TypedExcept():
            knowledge.learn_gain(node.name, out / inflow[0] if inflow[0] else 0.0)
        case TypedTableJoin():
            share = flows.share(node.name, node.where)
            knowledge.learn_gain(node.name, out / inflow[0] / share if share else 0.0)
        case TypedJoin():
            expected = flows.flow(node, inflow, read).out[None]
            factor = out / expected if expected else 0.0
            if node.on:
                knowledge.learn_equalities(flows.equalities(node), factor)
            else:
                knowledge.learn_gain(node.name, factor)


def kind_of(node: TypedNode) -> str:
    """Return the kind of an operator, as measured costs are kept by."""
    match node:
        case TypedSelect():
            return "select"
        case TypedSplit():
            return "split"
        case TypedUnion():
            return "union"
        case TypedAggregate():
            return "aggregate"
        case TypedExcept():
            return "except"
        case TypedJoin():
            return "join"
        case TypedTableJoin():
            return "table"
    return "project"


def _memory(
    node: TypedNode, typed: TypedPlan, inflow: list[float], flow: Flow, read: frozenset[str]
) -> float:
    """Return the bytes that wait in front of a node, and those that it keeps."""
    sizes = []
    for place, reference in enumerate(node.inputs):
        columns = reads(node, place, read)
        sizes.append(row_bytes(f for f in typed.nodes[reference.node].schema if f.name in columns))
    queued = sum(rate * QUEUED * size for rate, size in zip(inflow, sizes, strict=True))
    rate = sum(inflow)
    mean = sum(r * size for r, size in zip(inflow, sizes, strict=True)) / rate if rate else 0.0
    return queued + flow.held * mean
