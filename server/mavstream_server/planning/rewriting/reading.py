"""Reading: which columns of each node a plan must keep so that it can be written without the others."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedPlan


def columns_read(typed: TypedPlan) -> dict[str, frozenset[str]]:
    """Return the columns of each node that are read above it, all of them at the root.

    More than the engine carries: inputs that are put together must have the same columns, and whoever only
    counts rows still needs one, for rows without columns cannot be written.
    """
    read: dict[str, set[str]] = {name: set() for name in typed.nodes}
    read[typed.root.node] |= set(typed.schema.names)
    for node in reversed(list(typed.nodes.values())):
        wanted = read[node.name]
        if node.passes_columns and len(node.inputs) > 1:
            wanted |= set(node.schema.names)
        elif node.row_columns and not wanted:
            wanted.add(node.row_columns[0][0])
        for place, reference in enumerate(node.inputs):
            read[reference.node] |= node.reads(place, wanted)
    return {name: frozenset(columns) for name, columns in read.items()}
