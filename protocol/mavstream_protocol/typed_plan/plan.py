"""Typed plan: nodes bottom-up, and properties of the plan as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mavstream_protocol.expressions.typed import ColumnRef
from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan.node import TypedNode
from mavstream_protocol.typed_plan.row_nodes import TypedProject, TypedSelect, TypedSource, TypedSplit
from mavstream_protocol.typed_plan.window_nodes import TypedAggregate

__all__ = ["StreamShape", "TypedPlan", "all_below", "streams_below"]


@dataclass(frozen=True, slots=True)
class StreamShape:
    """The properties of a stream, or of a query's results, that inference needs."""

    schema: Schema
    event_time: str | None = None
    """The column with the time of the rows, if there is one."""
    query: str | None = None
    """The id of the query whose results it has; None for a stream that is fed."""
    derived: bool = False
    """Whether the query is a derived stream, which plans may read as a stream."""
    in_order: bool = True
    """Whether the order of the rows depends on the logs alone: always for a stream that is fed."""

    @property
    def is_query(self) -> bool:
        """Whether plans can read it as a query."""
        return self.query is not None

    @property
    def is_stream(self) -> bool:
        """Whether plans can read it as a stream."""
        return self.query is None or self.derived


@dataclass(frozen=True, slots=True)
class TypedPlan:
    """A checked plan: nodes bottom-up, each after its inputs."""

    nodes: Mapping[str, TypedNode]
    root: InputRef

    @property
    def schema(self) -> Schema:
        """The columns of the query's answer."""
        return self.nodes[self.root.node].schema

    @property
    def sources(self) -> Iterator[TypedSource]:
        """The leaves."""
        return (node for node in self.nodes.values() if isinstance(node, TypedSource))

    @property
    def upstream_queries(self) -> Mapping[str, str]:
        """The ids of the queries whose results it reads, by name."""
        return {source.stream: source.query for source in self.sources if source.query is not None}

    def results(self, id_: str, *, derived: bool = False) -> StreamShape:
        """Return its results as other plans see them, under the id of the query that it is of."""
        root = self.root.node
        return StreamShape(self.schema, self._time_column(root), id_, derived, self.ordered[root])

    def _time_column(self, name: str) -> str | None:
        """Return the column with the time of a node's rows, where it is still that of the source."""
        renamed: list[TypedProject] = []
        node = self.nodes[name]
        while isinstance(node, (TypedSelect, TypedSplit, TypedProject)):
            if isinstance(node, TypedProject):
                renamed.append(node)
            node = self.nodes[node.inputs[0].node]
        column = node.event_time if isinstance(node, TypedSource) else None
        for project in reversed(renamed):
            kept = (
                name for name, one in project.compute if isinstance(one, ColumnRef) and one.name == column
            )
            column = next(kept, None)
        return column

    @property
    def operating(self) -> Iterator[TypedNode]:
        """The nodes that operators run for, sources included."""
        return (node for node in self.nodes.values() if node.has_operator)

    @property
    def scaled(self) -> list[TypedAggregate]:
        """The aggregates that compensate for shed rows."""
        aggregates = (node for node in self.nodes.values() if isinstance(node, TypedAggregate))
        return [node for node in aggregates if node.scaled]

    @property
    def tables(self) -> frozenset[str]:
        """The stored tables that it reads."""
        return frozenset(table for table, _ in self.table_keys)

    @property
    def table_keys(self) -> frozenset[tuple[str, tuple[str, ...]]]:
        """The stored tables, each with the columns by which it is read."""
        lookups = (node.lookup for node in self.nodes.values())
        return frozenset((lookup.table, lookup.keys) for lookup in lookups if lookup is not None)

    @property
    def ordered(self) -> Mapping[str, bool]:
        """By node: whether the order of its rows depends on the logs alone, not on how operators are run."""
        ordered: dict[str, bool] = {}
        for node in self.nodes.values():
            ordered[node.name] = node.gives_order([ordered[reference.node] for reference in node.inputs])
        return ordered

    @property
    def one_time_node(self) -> TypedNode:
        """The node whose first window ends a one-time query: the last one that is not row by row."""
        node = self.nodes[self.root.node]
        while node.row_by_row:
            node = self.nodes[node.inputs[0].node]
        return node

    def needed_columns(self, above: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Return the columns of each node that are read above it, in schema order; no others are carried.

        `above` are the columns that are read of the root; by default all.
        """
        wanted: dict[str, set[str]] = {name: set() for name in self.nodes}
        wanted[self.root.node] |= set(self.schema.names if above is None else above)
        for node in reversed(list(self.nodes.values())):
            for index, reference in enumerate(node.inputs):
                wanted[reference.node] |= node.reads(index, wanted[node.name])
        return {
            name: tuple(column for column in self.nodes[name].schema.names if column in columns)
            for name, columns in wanted.items()
        }

    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Return the operator paths, leaf to root, one per leaf (the first where a split offers several)."""
        above: dict[str, str] = {}
        for node in self.nodes.values():
            for reference in node.inputs:
                above.setdefault(reference.node, node.name)
        found = []
        for source in self.sources:
            path = [source.name]
            while path[-1] in above:
                path.append(above[path[-1]])
            found.append(tuple(path))
        return tuple(found)


def all_below(nodes: Mapping[str, TypedNode], reference: InputRef) -> Iterator[TypedNode]:
    """Yield the node that is read and all below it, each once."""
    seen, waiting = {reference.node}, [reference.node]
    while waiting:
        node = nodes[waiting.pop()]
        yield node
        for below in node.inputs:
            if below.node not in seen:
                seen.add(below.node)
                waiting.append(below.node)


def streams_below(nodes: Mapping[str, TypedNode], reference: InputRef) -> set[str]:
    """Return the streams that a node is fed from."""
    return {node.stream for node in all_below(nodes, reference) if isinstance(node, TypedSource)}
