"""Backends that can run a plan: this service, and the plan compiler for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from mavstream_protocol.expressions.typed import Call, Expression, Literal, parts
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


def refused_by_spark(plan: TypedPlan) -> tuple[str, ...]:
    """Return what the plan compiler for Spark refuses in a plan, by node; empty if it can run it."""
    found = []
    for node in plan.nodes.values():
        if type(node.runs_as) not in SPARK_NODES and node.has_operator:
            found.append(f"{node.name}: the operator '{node.op}' is not supported")
        elif any(map(_is_variable_escape, _expressions(node))):
            found.append(f"{node.name}: LIKE with ESCAPE needs a constant pattern")
    return tuple(found)


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
