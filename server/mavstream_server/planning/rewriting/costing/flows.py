"""Flows: the rows per second that leave each node, and what it costs to make them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plan import ELSE
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedProject,
    TypedSelect,
    TypedSplit,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_protocol.windows import RowWindow, TimeWindow
from mavstream_server.planning.rewriting.costing.estimates import (
    BASE_COSTS,
    COLUMN_COST,
    GROUPS,
    LEFT_OVER,
    PAIR_COST,
    evaluation_cost,
)
from mavstream_server.planning.rewriting.costing.knowledge import Equality, Knowledge
from mavstream_server.planning.rewriting.costing.lineage import Lineage
from mavstream_server.planning.rewriting.expressions import conjuncts

_SECOND = 1_000_000
_SHORTEST = 1e-3
"""Seconds: rows at one and the same time are at least that near."""


class Flow(NamedTuple):
    """What a node does in a second."""

    out: Mapping[str | None, float]
    """Rows, by output; a node that is no split has the output None."""
    work: float
    """Nanoseconds, by the estimates alone."""
    held: float = 0.0
    """Rows that it keeps, of all inputs."""


@dataclass(frozen=True)
class Flows:
    """Works out flows of the nodes of one plan, by what is known and by estimates."""

    lineage: Lineage
    knowledge: Knowledge

    def parts(self, node: str, predicate: Expression | None) -> list[tuple[Expression, ...]]:
        """Return the parts of a predicate, each in terms of streams."""
        if predicate is None:
            return []
        return [self.lineage.origins(node, part) for part in conjuncts(predicate)]

    def share(self, node: str, predicate: Expression | None) -> float:
        """Return the share of rows or pairs for which a predicate is true."""
        return math.prod(self.knowledge.selectivity(origins) for origins in self.parts(node, predicate))

    def equalities(self, join: TypedJoin) -> list[Equality]:
        """Return the keys of a join in terms of streams."""
        left, right = join.inputs
        return [frozenset((self.lineage.column(left, a), self.lineage.column(right, b))) for a, b in join.on]

    def flow(self, node: TypedNode, rates: Sequence[float], read: frozenset[str]) -> Flow:
        """Return what a node does if its inputs bring so many rows per second."""
        match node:
            case TypedSelect():
                return self._select(node, rates[0])
            case TypedProject():
                cost = _total(e for column, e in node.compute if column in read)
                return Flow({None: rates[0]}, rates[0] * (BASE_COSTS["project"] + cost))
            case TypedSplit():
                return self._split(node, rates[0])
            case TypedUnion():
                cost = BASE_COSTS["union"] + (BASE_COSTS["ordered"] if node.ordered else 0.0)
                return Flow({None: sum(rates)}, sum(rates) * cost)
            case TypedAggregate():
                return self._aggregate(node, rates[0])
            case TypedExcept():
                out = rates[0] * self.knowledge.gain(node.name, LEFT_OVER)
                return Flow({None: out}, sum(rates) * BASE_COSTS["except"], _held(node.window, rates))
            case TypedJoin():
                return self._join(node, rates)
            case TypedTableJoin():
                return self._table_join(node, rates[0], read)
        raise AssertionError(f"no flow for {type(node).__name__}")

    def _select(self, node: TypedSelect, rate: float) -> Flow:
        parts = conjuncts(node.where)
        cost = BASE_COSTS["select"] + _total(parts)
        return Flow({None: rate * self.share(node.name, node.where)}, rate * cost)

    def _split(self, node: TypedSplit, rate: float) -> Flow:
        out: dict[str | None, float] = {}
        left, work = rate, rate * BASE_COSTS["split"]
        for output, where in node.outputs:
            work += left * evaluation_cost(where)
            out[output] = left * self.share(node.name, where)
            left -= out[output]
        out[ELSE] = left
        return Flow(out, work)

    def _aggregate(self, node: TypedAggregate, rate: float) -> Flow:
        calls = [call for _, expression in node.compute for call in expression.calls]
        arguments = _total(call.argument for call in calls if call.argument is not None)
        work = rate * (BASE_COSTS["aggregate"] + 20.0 * len(calls) + arguments)
        groups = GROUPS if node.by else 1.0
        step = node.window.step
        windows = rate / step if isinstance(node.window, RowWindow) else _SECOND / step
        most = rate * max(1.0, node.window.size / step)  # every row a group of its own, in every window
        guessed = min(windows * groups, most) / rate if rate else 0.0
        out = rate * self.knowledge.gain(node.name, guessed)
        return Flow({None: out}, work, min(groups * max(1.0, node.window.size / step), most))

    def _join(self, node: TypedJoin, rates: Sequence[float]) -> Flow:
        near = _neighbours(node, rates)
        pairs = near * math.prod(self.knowledge.equality(pair) for pair in self.equalities(node))
        pairs *= self.knowledge.gain(node.name, 1.0) if not node.on else 1.0
        out = pairs * self.share(node.name, node.where)
        asked = 0.0 if node.where is None else evaluation_cost(node.where)
        work = sum(rates) * BASE_COSTS["join"] + pairs * (PAIR_COST + asked)
        handed = _total(e for _, e in node.compute) + COLUMN_COST * len(node.compute)
        work += out * (handed + (BASE_COSTS["ordered"] if node.ordered else 0.0))
        if node.window is not None:
            return Flow({None: out}, work, _held(node.window, rates))
        assert node.within is not None
        kept = rates[0] * node.within.after / _SECOND + rates[1] * node.within.before / _SECOND
        return Flow({None: out}, work, kept)

    def _table_join(self, node: TypedTableJoin, rate: float, read: frozenset[str]) -> Flow:
        pairs = rate * self.knowledge.gain(node.name, 1.0)
        out = pairs * self.share(node.name, node.where)
        if node.outer:
            out = max(out, rate)
        asked = 0.0 if node.where is None else evaluation_cost(node.where)
        work = rate * BASE_COSTS["table"] + pairs * (PAIR_COST + asked)
        return Flow({None: out}, work + out * _total(e for column, e in node.compute if column in read))


def _neighbours(node: TypedJoin, rates: Sequence[float]) -> float:
    """Return the pairs of rows per second that are near enough to be looked at, whatever their keys."""
    left, right = rates
    if node.within is not None:
        return left * right * max((node.within.before + node.within.after) / _SECOND, _SHORTEST)
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
    return sum(evaluation_cost(expression) for expression in expressions)
