"""What a plan promises about order, so that answers can be compared as strictly as they may be."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedAggregate, TypedJoin, TypedPlan, TypedSource, TypedUnion


def is_ordered(plan: TypedPlan, name: str) -> bool:
    """Whether a node's rows come in one order, whatever the policy."""
    node = plan.nodes[name]
    match node:
        case TypedSource():
            return True
        case TypedUnion() | TypedJoin():
            return node.ordered
        case TypedAggregate() if not node.by:
            return True
    return is_ordered(plan, node.inputs[0].node)


def is_ordered_throughout(plan: TypedPlan) -> bool:
    """Whether every node's rows come in one order, so that floats are summed in one order too."""
    return all(is_ordered(plan, name) for name in plan.nodes)
