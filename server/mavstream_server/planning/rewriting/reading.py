"""Reading: which columns of each node somebody above reads."""

from __future__ import annotations

from collections.abc import Iterable, Set

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSplit,
    TypedTableJoin,
)


def columns_read(typed: TypedPlan) -> dict[str, frozenset[str]]:
    """Return the columns of each node that are read above it, all of them at the root.

    Unions and excepts read whole rows; so does whoever hands rows on to them.
    """
    read: dict[str, set[str]] = {name: set() for name in typed.nodes}
    read[typed.root.node] |= set(typed.schema.names)
    for node in reversed(list(typed.nodes.values())):
        if isinstance(node, TypedProject | TypedJoin | TypedTableJoin) and not read[node.name]:
            read[node.name].add(node.compute[0][0])  # whoever only counts rows still needs one column
        for place, reference in enumerate(node.inputs):
            read[reference.node] |= reads(node, place, read[node.name])
    return {name: frozenset(columns) for name, columns in read.items()}


def reads(node: TypedNode, place: int, read: Set[str]) -> set[str]:
    """Return the columns that a node reads of one input, if `read` are those that are read of itself."""
    match node:
        case TypedSelect():
            return set(read) | set(references(node.where))
        case TypedSplit():
            return set(read) | _names(where for _, where in node.outputs)
        case TypedProject():
            return _names(e for column, e in node.compute if column in read)
        case TypedAggregate():
            arguments = (call.argument for _, e in node.compute for call in e.calls)
            return set(node.by) | _names(argument for argument in arguments if argument is not None)
        case TypedJoin() | TypedTableJoin():
            prefix = "lr"[place] + "."
            where = () if node.where is None else (node.where,)
            # A join of streams computes all that it says; a column goes there first, then what it read.
            spare = isinstance(node, TypedTableJoin)
            names = _names((*(e for column, e in node.compute if column in read or not spare), *where))
            keys = {pair[place] for pair in node.on}
            return keys | {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        case TypedExcept():
            return {name for name in node.schema.names if name not in ("window_start", "window_end")}
    return set(node.schema.names)


def _names(expressions: Iterable[Expression]) -> set[str]:
    return {name for expression in expressions for name in references(expression)}
