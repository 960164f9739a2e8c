"""Backends that can run a plan: this service, and the plan compiler for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from mavstream_protocol.expressions.typed import Call, Expression, Literal, parts
from mavstream_protocol.plans.windows import TimeWindow
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSessions,
    TypedSource,
    TypedSplit,
    TypedTableJoin,
    TypedUnion,
)

SPARK_NODES: frozenset[type[TypedNode]] = frozenset(
    {
        TypedAggregate,
        TypedExcept,
        TypedJoin,
        TypedProject,
        TypedSelect,
        TypedSessions,
        TypedSource,
        TypedSplit,
        TypedTableJoin,
        TypedUnion,
    }
)
"""The nodes that the plan compiler for Spark knows; others run there as one of these, or not at all."""
SHORTEST_LATENCY = 10_000_000
"""Latency targets below this are not expected to be kept by micro-batches (us)."""


def refused_by_spark(plan: TypedPlan) -> tuple[str, ...]:
    """Return what the plan compiler for Spark refuses in a plan, by node; empty if it can run it."""
    found = []
    for node in plan.nodes.values():
        if type(node.runs_as) not in SPARK_NODES and node.has_operator:
            found.append(f"{node.name}: the operator '{node.op}' is not supported")
        elif any(map(_is_variable_escape, _expressions(node))):
            found.append(f"{node.name}: LIKE with ESCAPE needs a constant pattern")
    return tuple(found)


def refused_by_runner(plan: TypedPlan) -> tuple[str, ...]:
    """Return what a runner on Spark refuses in the plan of a continuous query, by node.

    It computes the answers of micro-batches of rows: what depends on the order in which the rows of several
    inputs arrive, has no longest reach in time, or ends the query by itself, is left to the engine.
    """
    found = list(refused_by_spark(plan))
    found += [
        f"{source.name}: reads the results of query '{source.stream}', and only streams are read"
        for source in plan.sources
        if source.query is not None
    ]
    for node in plan.nodes.values():
        found += [f"{node.name}: {reason}" for reason in _not_in_batches(node)]
    found += [f"{node.name}: 'scaled' is not supported, as no rows are shed" for node in plan.scaled]
    return tuple(found)


def _not_in_batches(node: TypedNode) -> Iterator[str]:
    window = node.windowed_by
    if node.lookup is not None:
        yield "joins with stored tables are not supported"
    if node.needs_position:
        yield "'order' is not supported: sort the results where they are read"
    if node.counts_rows:
        yield "windows by rows are not supported, only windows by time"
    if node.endless:
        yield "sessions are not supported, only windows of a fixed length"
    if isinstance(window, TimeWindow) and window.until is not None:
        yield "'until' is not supported: stop the query at that time"


def _is_variable_escape(expression: Expression) -> bool:
    return (
        isinstance(expression, Call)
        and expression.function in ("like", "ilike")
        and len(expression.arguments) > 2
        and not isinstance(expression.arguments[1], Literal)
    )


def _expressions(value: object) -> Iterator[Expression]:
    """Yield all expressions inside a node."""
    if isinstance(value, Call):
        yield from parts(value)
    elif isinstance(value, tuple):
        for one in value:
            yield from _expressions(one)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _expressions(getattr(value, field.name))
