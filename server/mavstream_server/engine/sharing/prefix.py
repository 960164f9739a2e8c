"""Chains: the lower parts of a plan that other plans may have too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mavstream_protocol.plan import InputRef
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSource,
    TypedTableJoin,
)
from mavstream_protocol.windows import TimeWindow
from mavstream_server.operators.shedding.shedder import WEIGHT
from mavstream_server.operators.source import Needs
from mavstream_server.planning.instantiator import RunOptions, needed_columns, needs_of, one_time_node


@dataclass(frozen=True, slots=True)
class Prefix:
    """A source and what is done to its rows alone, one node after the other."""

    stream: str
    nodes: tuple[str, ...]
    """Names, the source first."""
    keys: tuple[str, ...]
    """What the source and the first node, the first two, ... do, whatever their names are."""
    columns: tuple[tuple[str, ...], ...]
    """What goes on from the first node, the second, ..."""
    needs: Needs
    windowed: bool
    """Whether one of the nodes keeps rows."""


def prefixes(plan: TypedPlan, options: RunOptions) -> list[Prefix]:
    """Return a plan's prefixes, by its sources; those that nobody could share are left out.

    A query that ends by the clock has no part in this: its source must stop at a row of its own.
    """
    if options.stop_at is not None:
        return []
    needs, needed = needs_of(plan), needed_columns(plan)
    once = one_time_node(plan) if options.one_time else None
    found = []
    for source in plan.sources:
        nodes = list(_upwards(plan, source, needs, once))
        if nodes:
            weighs = WEIGHT in source.schema.names
            key = f"{source.stream!r} {source.event_time!r} {weighs} {needs!r} {options.on_error!r}"
            keys, columns = [], []
            for node in nodes:
                key += f"\n{_done_by(node, needed)!r}"
                keys.append(key)
                columns.append(_handed_on(node, needed))
            found.append(
                Prefix(
                    source.stream,
                    (source.name, *(node.name for node in nodes)),
                    tuple(keys),
                    tuple(columns),
                    needs,
                    any(isinstance(node, TypedAggregate) for node in nodes),
                )
            )
    return found


def lower_part(plan: TypedPlan, nodes: tuple[str, ...]) -> TypedPlan:
    """Return the first nodes of a chain as a plan of their own."""
    return TypedPlan({name: plan.nodes[name] for name in nodes}, InputRef(nodes[-1], None))


def _upwards(plan: TypedPlan, source: TypedSource, needs: Needs, once: str | None) -> Iterator[TypedNode]:
    """Yield the nodes that read one another alone, from a source up to the first that cannot be shared."""
    readers = Counter([reference.node for node in plan.nodes.values() for reference in node.inputs])
    readers[plan.root.node] += 1
    above = {reference.node: node for node in plan.nodes.values() for reference in node.inputs}
    name = source.name
    while readers[name] == 1 and name in above:
        node = above[name]
        if not _is_shareable(node, needs) or node.name == once:
            return
        yield node
        name = node.name


def _is_shareable(node: TypedNode, needs: Needs) -> bool:
    """Whether a node's state can be that of another query, which has come later, from some place on."""
    match node:
        case TypedSelect() | TypedProject():
            return True
        case TypedTableJoin():
            # Its rows are numbered from its start on, which shows where they are put in order.
            return not needs.position
        case TypedAggregate():
            # So are answers of windows. Windows by rows begin with the query, partial ones are cut by it.
            by_time = isinstance(node.window, TimeWindow) and not node.window.partial
            return by_time and not needs.position
        case _:
            return False


def _handed_on(node: TypedNode, needed: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the columns that a node's operator emits: a window answers with all it has."""
    return node.schema.names if isinstance(node, TypedAggregate) else needed[node.name]


def _done_by(node: TypedNode, needed: Mapping[str, tuple[str, ...]]) -> tuple[object, ...]:
    """Return what a node does, as its text tells it: 1 and 1.0 are equal, and not the same."""
    wanted = set(needed[node.name])
    match node:
        case TypedSelect():
            return "select", node.where
        case TypedProject():
            # Only what is computed: an error in a column that one query does not read is not its error.
            return "project", [column for column in node.compute if column[0] in wanted]
        case TypedTableJoin():
            compute = [column for column in node.compute if column[0] in wanted]
            return "join", node.table, node.table_schema, node.on, node.outer, node.where, compute
        case TypedAggregate():
            return "aggregate", node.by, node.window, node.compute
        case _:
            raise AssertionError(f"a {type(node).__name__} is not shared")
