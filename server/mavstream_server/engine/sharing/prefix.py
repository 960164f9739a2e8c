"""Chains: the lower parts of a plan that other plans may have too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mavstream_protocol.plan import InputRef
from mavstream_protocol.typed_plan import TypedNode, TypedPlan, TypedSource
from mavstream_server.operators.shedding.shedder import WEIGHT
from mavstream_server.operators.source import Needs
from mavstream_server.planning.instantiator import RunOptions, needs_of


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

    A query that ends by the clock has no part in this, since its source must stop at a row of its own; nor
    has a one-time query, whose source tells with which window it ends.
    """
    if options.stop_at is not None or options.one_time:
        return []
    needs, needed = needs_of(plan), plan.needed_columns()
    found = []
    for source in plan.sources:
        nodes = list(_upwards(plan, source, needs))
        if nodes:
            weighs = WEIGHT in source.schema.names
            key = f"{source.stream!r} {source.event_time!r} {weighs} {needs!r} {options.on_error!r}"
            keys, columns = [], []
            for node in nodes:
                # As its text tells it: 1 and 1.0 are equal, and not the same.
                key += f"\n{node.signature(frozenset(needed[node.name]))!r}"
                keys.append(key)
                columns.append(node.schema.names if node.emits_all_columns else needed[node.name])
            found.append(
                Prefix(
                    source.stream,
                    (source.name, *(node.name for node in nodes)),
                    tuple(keys),
                    tuple(columns),
                    needs,
                    any(node.stateful for node in nodes),
                )
            )
    return found


def lower_part(plan: TypedPlan, nodes: tuple[str, ...]) -> TypedPlan:
    """Return the first nodes of a chain as a plan of their own."""
    return TypedPlan({name: plan.nodes[name] for name in nodes}, InputRef(nodes[-1], None))


def _upwards(plan: TypedPlan, source: TypedSource, needs: Needs) -> Iterator[TypedNode]:
    """Yield the nodes that read one another alone, from a source up to the first that cannot be shared."""
    readers = Counter([reference.node for node in plan.nodes.values() for reference in node.inputs])
    readers[plan.root.node] += 1
    above = {reference.node: node for node in plan.nodes.values() for reference in node.inputs}
    name = source.name
    while readers[name] == 1 and name in above:
        node = above[name]
        if not node.shareable(needs.position):
            return
        yield node
        name = node.name
