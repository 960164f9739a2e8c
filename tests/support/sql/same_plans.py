"""Comparison of plans up to the names of nodes and the spelling of expressions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import InputRef, Plan
from mavstream_protocol.sql import Catalog
from mavstream_protocol.typed_plan import TypedNode


def canonical(plan: Plan, catalog: Catalog) -> tuple[list[TypedNode], list[Any], InputRef]:
    """Return the typed nodes, renamed by the order in which the root reads them, and their hints.

    Two nodes that read the same node differ from two that read equal ones.
    """
    typed = infer(plan, catalog.streams, catalog.tables)
    names: dict[str, str] = {}
    waiting = [InputRef.parse(plan.root).node]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names[name] = f"n{len(names)}"
            waiting += [reference.node for reference in reversed(plan.inputs(name).values())]

    def renamed(reference: InputRef) -> InputRef:
        return InputRef(names[reference.node], reference.output)

    nodes = [
        replace(typed.nodes[old], name=new, inputs=tuple(map(renamed, typed.nodes[old].inputs)))
        for old, new in names.items()
    ]
    return nodes, [node.hints for node in nodes], renamed(InputRef.parse(plan.root))
