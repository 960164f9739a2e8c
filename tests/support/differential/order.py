"""The order that a plan guarantees, so that answers are compared as strictly as possible."""

from __future__ import annotations

from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedJoin,
    TypedPlan,
    TypedSessions,
    TypedSource,
    TypedUnion,
)


def is_ordered(plan: TypedPlan, name: str) -> bool:
    """Whether the order of a node's rows does not depend on the policy."""
    node = plan.nodes[name]
    match node:
        case TypedSource():
            return True
        case TypedUnion() | TypedJoin():
            return node.ordered
        case TypedAggregate() | TypedSessions() if not node.by:
            return True
    return is_ordered(plan, node.inputs[0].node)
