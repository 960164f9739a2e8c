"""Reading plans."""

from __future__ import annotations

from mavstream_protocol import Plan


def tables_of(plan: Plan) -> frozenset[str]:
    """Return the stored tables that a plan joins."""
    return frozenset(
        str(given["table"]) for node in plan.nodes.values() if (given := node.model_dump()).get("table")
    )
