"""Costs of operators: for each kind of node its flow, and what is learned from its metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.plan import ELSE
from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedDistinct,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedProject,
    TypedSelect,
    TypedSessions,
    TypedSplit,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_server.planning.rewriting.costing.estimates import (
    BASE_COSTS,
    COLUMN_COST,
    GROUPS,
    LEFT_OVER,
    PAIR_COST,
    evaluation_cost,
)
from mavstream_server.planning.rewriting.costing.flows import Flow, Flows
from mavstream_server.planning.rewriting.expressions import conjuncts

_SECOND = 1_000_000
_SHORTEST_INTERVAL = 1e-3
"""The shortest interval (s) of an interval join in estimates: rows have the same time within it."""
_DISTINCT_SHARE = 0.5
"""The share of the rows in a window that differ from all rows before them."""


class Inflow(NamedTuple):
    """The input rates of a node, and which of its columns are read."""

    rates: Sequence[float]
    """Rows per second, by input."""
    read: frozenset[str]
    """The node's columns that downstream nodes read."""


class Costing(NamedTuple):
    """The cost functions of a kind of node."""

    kind: str
    """The key under which cost factors are shared between operators."""
    flow: Callable[[Any, Flows, Inflow], Flow]
    """Returns the flow of a node."""
    learn: Callable[[Any, Flows, Inflow, float], None]
    """Learns from the measured output of a node, in rows per second."""


def _select(node: TypedSelect, flows: Flows, inflow: Inflow) -> Flow:
    (rate,) = inflow.rates
    cost = BASE_COSTS["select"] + _total(conjuncts(node.where))
    return Flow({None: rate * flows.share(node.name, node.where)}, rate * cost)


def _learn_predicate(node: TypedSelect, flows: Flows, inflow: Inflow, out: float) -> None:
    parts = flows.parts(node.name, node.where)
    flows.knowledge.learn_selectivity(parts, out / inflow.rates[0])


def _project(node: TypedProject, flows: Flows, inflow: Inflow) -> Flow:
    (rate,) = inflow.rates
    cost = _total(e for column, e in node.compute if column in inflow.read)
    return Flow({None: rate}, rate * (BASE_COSTS["project"] + cost))


def _split(node: TypedSplit, flows: Flows, inflow: Inflow) -> Flow:
    (left,) = inflow.rates
    out: dict[str | None, float] = {}
    work = left * BASE_COSTS["split"]
    for output, where in node.outputs:
        work += left * evaluation_cost(where)
        out[output] = left * flows.share(node.name, where)
        left -= out[output]
    out[ELSE] = left
    return Flow(out, work)


def _union(node: TypedUnion, flows: Flows, inflow: Inflow) -> Flow:
    rate = sum(inflow.rates)
    cost = BASE_COSTS["union"] + (BASE_COSTS["ordered"] if node.ordered else 0.0)
    return Flow({None: rate}, rate * cost)


def _learn_nothing(node: TypedNode, flows: Flows, inflow: Inflow, out: float) -> None:
    """Learn nothing: output equals input, or the output that rows went to is unknown."""


def _aggregate(node: TypedAggregate, flows: Flows, inflow: Inflow) -> Flow:
    (rate,) = inflow.rates
    calls = [call for _, expression in node.compute for call in expression.calls]
    arguments = _total(call.argument for call in calls if call.argument is not None)
    work = rate * (BASE_COSTS["aggregate"] + 20.0 * len(calls) + arguments)
    groups = GROUPS if node.by else 1.0
    step = node.window.step
    windows = rate / step if isinstance(node.window, RowWindow) else _SECOND / step
    most = rate * max(1.0, node.window.size / step)  # every row a group of its own, in every window
    guessed = min(windows * groups, most) / rate if rate else 0.0
    out = rate * flows.knowledge.gain(node.name, guessed)
    return Flow({None: out}, work, min(groups * max(1.0, node.window.size / step), most))


def _sessions(node: TypedSessions, flows: Flows, inflow: Inflow) -> Flow:
    (rate,) = inflow.rates
    calls = [call for _, expression in node.compute for call in expression.calls]
    arguments = _total(call.argument for call in calls if call.argument is not None)
    work = rate * (BASE_COSTS["sessions"] + 20.0 * len(calls) + arguments)
    groups = GROUPS if node.by else 1.0
    guessed = min(groups * _SECOND / node.window.gap, rate) / rate if rate else 0.0
    out = rate * flows.knowledge.gain(node.name, guessed)
    return Flow({None: out}, work, 2.0 * groups)


def _distinct(node: TypedDistinct, flows: Flows, inflow: Inflow) -> Flow:
    (rate,) = inflow.rates
    work = rate * (BASE_COSTS["aggregate"] + COLUMN_COST * len(node.row_columns))
    windows = max(1.0, node.window.size / node.window.step)  # that each row is in
    out = rate * flows.knowledge.gain(node.name, _DISTINCT_SHARE * windows)
    return Flow({None: out}, work, _DISTINCT_SHARE * _held(node.window, inflow.rates))


def _except(node: TypedExcept, flows: Flows, inflow: Inflow) -> Flow:
    out = inflow.rates[0] * flows.knowledge.gain(node.name, LEFT_OVER)
    return Flow({None: out}, sum(inflow.rates) * BASE_COSTS["except"], _held(node.window, inflow.rates))


def _learn_gain(node: TypedNode, flows: Flows, inflow: Inflow, out: float) -> None:
    rate = inflow.rates[0]
    flows.knowledge.learn_gain(node.name, out / rate if rate else 0.0)


def _join(node: TypedJoin, flows: Flows, inflow: Inflow) -> Flow:
    rates, knowledge = inflow.rates, flows.knowledge
    near = _neighbours(node, rates)
    pairs = near * math.prod(knowledge.equality(pair) for pair in flows.equalities(node))
    pairs *= knowledge.gain(node.name, 1.0) if not node.on else 1.0
    out = pairs * flows.share(node.name, node.where)
    condition = 0.0 if node.where is None else evaluation_cost(node.where)
    work = sum(rates) * BASE_COSTS["join"] + pairs * (PAIR_COST + condition)
    emitted = _total(e for _, e in node.compute) + COLUMN_COST * len(node.compute)
    work += out * (emitted + (BASE_COSTS["ordered"] if node.ordered else 0.0))
    if node.window is not None:
        return Flow({None: out}, work, _held(node.window, rates))
    assert node.within is not None
    kept = rates[0] * node.within.after / _SECOND + rates[1] * node.within.before / _SECOND
    return Flow({None: out}, work, kept)


def _learn_join(node: TypedJoin, flows: Flows, inflow: Inflow, out: float) -> None:
    expected = _join(node, flows, inflow).out[None]
    factor = out / expected if expected else 0.0
    if node.on:
        flows.knowledge.learn_equalities(flows.equalities(node), factor)
    else:
        flows.knowledge.learn_gain(node.name, factor)


def _table_join(node: TypedTableJoin, flows: Flows, inflow: Inflow) -> Flow:
    (rate,) = inflow.rates
    pairs = rate * flows.knowledge.gain(node.name, 1.0)
    out = pairs * flows.share(node.name, node.where)
    if node.outer:
        out = max(out, rate)
    condition = 0.0 if node.where is None else evaluation_cost(node.where)
    work = rate * BASE_COSTS["table"] + pairs * (PAIR_COST + condition)
    return Flow({None: out}, work + out * _total(e for column, e in node.compute if column in inflow.read))


def _learn_table_join(node: TypedTableJoin, flows: Flows, inflow: Inflow, out: float) -> None:
    share = flows.share(node.name, node.where)
    flows.knowledge.learn_gain(node.name, out / inflow.rates[0] / share if share else 0.0)


COSTINGS: Mapping[type[TypedNode], Costing] = {
    TypedSelect: Costing("select", _select, _learn_predicate),
    TypedProject: Costing("project", _project, _learn_nothing),
    TypedSplit: Costing("split", _split, _learn_nothing),
    TypedUnion: Costing("union", _union, _learn_nothing),
    TypedAggregate: Costing("aggregate", _aggregate, _learn_gain),
    TypedSessions: Costing("sessions", _sessions, _learn_gain),
    TypedDistinct: Costing("distinct", _distinct, _learn_gain),
    TypedExcept: Costing("except", _except, _learn_gain),
    TypedJoin: Costing("join", _join, _learn_join),
    TypedTableJoin: Costing("table", _table_join, _learn_table_join),
}
"""The cost functions by type of node; sources are not included, since they cost the same in all plans."""


def _neighbours(node: TypedJoin, rates: Sequence[float]) -> float:
    """Return the pairs of rows per second that are close enough to be compared, regardless of their keys."""
    left, right = rates
    if node.within is not None:
        return left * right * max((node.within.before + node.within.after) / _SECOND, _SHORTEST_INTERVAL)
    assert node.window is not None
    size, step = node.window.size, node.window.step
    if isinstance(node.window, RowWindow):
        return min(left, right) / step * size * size
    return left * right * (size / _SECOND) * (size / step)


def _held(window: TimeWindow | RowWindow, rates: Sequence[float]) -> float:
    if isinstance(window, RowWindow):
        return float(window.size * len(rates))
    return sum(rates) * window.size / _SECOND


def _total(expressions: Iterable[Expression]) -> float:
    # Columns with the same text share their expression, which is walked once.
    costs: dict[int, float] = {}
    total = 0.0
    for expression in expressions:
        key = id(expression)
        if key not in costs:
            costs[key] = evaluation_cost(expression)
        total += costs[key]
    return total
