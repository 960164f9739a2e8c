"""Typed plans: what inference makes of a plan and a backend instantiates without deciding anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mavstream_protocol.expressions.typed import AggregateExpression, Expression
from mavstream_protocol.plan import InputRef, Within
from mavstream_protocol.schema import Schema
from mavstream_protocol.windows import RowWindow, TimeWindow


@dataclass(frozen=True, slots=True)
class StreamShape:
    """What inference must know of a stream."""

    schema: Schema
    event_time: str | None = None


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node whose inputs, expressions and result are known to fit together."""

    name: str
    inputs: tuple[InputRef, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class TypedSource(TypedNode):
    """Rows of a stream."""

    stream: str
    event_time: str | None


@dataclass(frozen=True, slots=True)
class TypedSelect(TypedNode):
    """Rows for which `where` is true."""

    where: Expression


@dataclass(frozen=True, slots=True)
class TypedProject(TypedNode):
    """Computed columns, in order."""

    compute: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class TypedSplit(TypedNode):
    """Outputs in the order in which their predicates are tried."""

    outputs: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class TypedUnion(TypedNode):
    """All rows of all inputs."""

    ordered: bool


@dataclass(frozen=True, slots=True)
class TypedExcept(TypedNode):
    """Left rows without an equal right row, per window."""

    window: TimeWindow | RowWindow


@dataclass(frozen=True, slots=True)
class TypedAggregate(TypedNode):
    """Aggregates per window and group."""

    by: tuple[str, ...]
    window: TimeWindow | RowWindow
    compute: tuple[tuple[str, AggregateExpression], ...]
    scaled: bool = False
    """Whether columns come in pairs, a value and its error, that stand for rows that were shed, too."""


@dataclass(frozen=True, slots=True)
class TypedJoin(TypedNode):
    """Pairs of rows; exactly one of `within` and `window` is given."""

    on: tuple[tuple[str, str], ...]
    within: Within | None
    window: TimeWindow | RowWindow | None
    where: Expression | None
    compute: tuple[tuple[str, Expression], ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class TypedTable(TypedNode):
    """A stored table; no operator of its own, its join looks things up in it."""

    table: str


@dataclass(frozen=True, slots=True)
class TypedTableJoin(TypedNode):
    """Rows of the only input, each with the rows of a table's version that have the same keys."""

    table: str
    table_schema: Schema
    on: tuple[tuple[str, str], ...]
    outer: bool
    """Whether rows that find nothing come out too."""
    where: Expression | None
    """A part of the condition, like the keys: it decides what is found."""
    compute: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class TypedPlan:
    """A plan that was checked: nodes bottom-up, each behind its inputs."""

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
    def tables(self) -> frozenset[str]:
        """The stored tables that it looks things up in."""
        return frozenset(node.table for node in self.nodes.values() if isinstance(node, TypedTable))

    @property
    def table_keys(self) -> frozenset[tuple[str, tuple[str, ...]]]:
        """The stored tables, each with the columns that it is looked up by."""
        joins = (node for node in self.nodes.values() if isinstance(node, TypedTableJoin))
        return frozenset((node.table, tuple(right for _, right in node.on)) for node in joins)

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
