"""Prefixes of plans that other plans may have in common with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.typed_plan import TypedNode, TypedPlan, TypedSource
from mavstream_server.operators.source import Needs
from mavstream_server.planning.instantiator import needs_of
from mavstream_server.planning.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class Prefix:
    """A source and the operators on its rows alone, one after the other."""

    stream: str
    nodes: tuple[str, ...]
    """Node names, the source first."""
    keys: tuple[str, ...]
    """Signatures, by depth: what the source and the first node, the first two, ... compute, without names."""
    columns: tuple[tuple[str, ...], ...]
    """Emitted columns, by depth: of the first node above the source, the second, ..."""
    needs: Needs
    """What the plan's sources must attach to their rows."""
    windowed: bool
    """Whether one of the nodes is stateful."""


def prefixes(plan: TypedPlan, options: RunOptions) -> list[Prefix]:
    """Return the shareable prefixes of a plan, at most one per source.

    A query with a `stop_at` has none, since its source must stop at a row of its own; nor has a one-time
    query, whose source determines the window that it ends with. Sources of other queries' results are not
    shared.
    """
    if options.stop_at is not None or options.one_time:
        return []
    needs, needed = needs_of(plan), plan.needed_columns()
    found = []
    for source in plan.sources:
        nodes = [] if source.query is not None else list(_upwards(plan, source, needs))
        if nodes:
            # A pipeline runs the plan of one of its members, which must know the columns of all.
            read = (source.stream, source.event_time, source.schema.names)
            begin = f"{read!r} {needs!r} {options.on_error!r}"
            digest = sha256(begin.encode())
            keys, columns = [], []
            for node in nodes:
                # Compared by repr: 1 and 1.0 are equal but of different types.
                digest.update(f"\n{node.signature(frozenset(needed[node.name]))!r}".encode())
                keys.append(digest.hexdigest())
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
    """Return the first nodes of a prefix as a plan of their own."""
    return TypedPlan({name: plan.nodes[name] for name in nodes}, InputRef(nodes[-1], None))


def _upwards(plan: TypedPlan, source: TypedSource, needs: Needs) -> Iterator[TypedNode]:
    """Yield the shareable nodes above a source, each of which is the only reader of the one below."""
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
