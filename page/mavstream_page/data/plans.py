"""Reading plans."""

from __future__ import annotations

from mavstream_protocol.plans.plan import Node


def inputs_of(node: Node) -> list[str]:
    """Return the names of the nodes that a node reads."""
    given = node.model_dump(mode="json", exclude_none=True)
    found = [given[name] for name in ("input", "left", "right") if isinstance(given.get(name), str)]
    return [*found, *given.get("inputs", ())]
