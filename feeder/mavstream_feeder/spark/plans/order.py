"""Order: which nodes of a plan must know the place of their rows, because something above goes by it."""

from __future__ import annotations

from mavstream_protocol.inference import ORDER_SENSITIVE
from mavstream_protocol.typed_plan import TypedAggregate, TypedExcept, TypedJoin, TypedNode, TypedPlan
from mavstream_protocol.windows import RowWindow


def nodes_in_order(plan: TypedPlan) -> frozenset[str]:
    """Return the names of the nodes whose rows need a position."""
    found: set[str] = set()
    for node in reversed(list(plan.nodes.values())):
        if node.name in found or _goes_by_order(node):
            found |= {reference.node for reference in node.inputs}
    return frozenset(found)


def _goes_by_order(node: TypedNode) -> bool:
    if isinstance(node, TypedAggregate | TypedExcept | TypedJoin) and isinstance(node.window, RowWindow):
        return True
    if isinstance(node, TypedAggregate):
        return any(call.function in ORDER_SENSITIVE for _, each in node.compute for call in each.calls)
    return False
