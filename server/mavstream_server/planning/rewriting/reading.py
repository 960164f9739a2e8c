"""Columns read: which columns of each node a rewritten plan must retain."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedPlan


def columns_read(typed: TypedPlan) -> dict[str, frozenset[str]]:
    """Return the columns of each node that are read above it; all columns of the root.

    These are more than the engine carries: all inputs of a union need the same columns, and a node that only
    counts rows still needs one, since a plan cannot express rows without columns.
    """
    read: dict[str, set[str]] = {name: set() for name in typed.nodes}
    read[typed.root.node] |= set(typed.schema.names)
    for node in reversed(list(typed.nodes.values())):
        wanted = read[node.name]
        if node.passes_columns and len(node.inputs) > 1:
            wanted |= set(node.schema.names)
        elif node.row_columns and not wanted:
            wanted.add(node.row_columns[0][0])
        for port, reference in enumerate(node.inputs):
            read[reference.node] |= node.reads(port, wanted)
    return {name: frozenset(columns) for name, columns in read.items()}
