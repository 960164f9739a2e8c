"""Order: which nodes of a plan must know the place of their rows, because something above goes by it."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedPlan


def nodes_in_order(plan: TypedPlan) -> frozenset[str]:
    """Return the names of the nodes whose rows need a position."""
    found: set[str] = set()
    for node in reversed(list(plan.nodes.values())):
        if node.name in found or node.order_sensitive:
            found |= {reference.node for reference in node.inputs}
    return frozenset(found)
