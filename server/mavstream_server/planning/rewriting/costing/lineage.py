"""Lineage: expresses predicates in terms of streams, so that they are recognized anywhere in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import NamedTuple

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, parts
from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.schema import Field
from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.planning.rewriting.expressions import MOST_PARTS

_MAX_ORIGINS = 8
_MAX_TOTAL_PARTS = 20_000
"""The most parts of all origins of a plan; beyond, predicates are identified by column names alone."""


class _Origin(NamedTuple):
    expression: Expression
    parts: int


class Lineage:
    """Traces columns of one plan down to the fields of streams and tables, when they are asked for.

    Through a union there are several ways down: a predicate above it equals each of its copies below. A
    column that is not computed from one row or one pair is identified by its node, which no rule changes.
    """

    def __init__(self, typed: TypedPlan) -> None:
        self._typed = typed
        self._streams = {source.name: source.stream for source in typed.sources}
        self._ways: dict[str, tuple[_Way, ...]] = {}
        for node in typed.nodes.values():  # bottom-up, so a node's inputs are known before it
            self._ways[node.name] = tuple(self._ways_down(node))
        # By node and identity of the expression, which the plan keeps alive.
        self._origins: dict[tuple[str, int], tuple[Expression, ...]] = {}
        self._parts_left = _MAX_TOTAL_PARTS

    def origins(self, node: str, expression: Expression) -> tuple[Expression, ...]:
        """Return an expression over a node's input in terms of streams, one for each way down.

        Expressions of joins name columns `l.x` and `r.x`.
        """
        key = node, id(expression)
        if key not in self._origins:
            self._origins[key] = tuple(dict.fromkeys(self._traced(node, expression)))
        return self._origins[key]

    def column(self, reference: InputRef, name: str) -> Expression:
        """Return the origin of a column; the first one if there are several ways down."""
        return self._find(self._ways[reference.node][0], name).expression

    def _traced(self, node: str, expression: Expression) -> Iterator[Expression]:
        names = {part.name for part in parts(expression) if isinstance(part, ColumnRef)}
        for sides in self._inputs(self._typed.nodes[node]):
            if self._parts_left <= 0:
                yield _resolved(expression, {})
                return
            known = {name: self._find(*_below(sides, name)) for name in names}
            size = _size(expression, known)
            self._parts_left -= size
            yield _resolved(expression, known if size <= MOST_PARTS else {})

    def _find(self, way: _Way, column: str) -> _Origin:
        """Return the origin of a column; iterative, since plans may be deep."""
        waiting = [(way, column)]
        while waiting:
            current, name = waiting[-1]
            if name in current.found:
                waiting.pop()
                continue
            computed = current.computed.get(name)
            if computed is None or self._parts_left <= 0:
                current.found[name] = _Origin(current.named(name), 1)
                continue
            read = {part.name for part in parts(computed) if isinstance(part, ColumnRef)}
            below = {one: _below(current.sides, one) for one in read}
            missing = [place for place in below.values() if place[1] not in place[0].found]
            if missing:
                waiting += missing
                continue
            known = {one: down.found[there] for one, (down, there) in below.items()}
            self._parts_left -= len(read)
            size = _size(computed, known)
            fits = size <= MOST_PARTS
            current.found[name] = _Origin(_resolved(computed, known if fits else {}), size if fits else 1)
        return way.found[column]

    def _ways_down(self, node: TypedNode) -> Iterator[_Way]:
        fields = {column.name: column for column in node.schema}
        if node.name in self._streams:
            yield _Way({}, (), self._streams[node.name], fields)
        elif node.passes_columns:
            below = (way for reference in node.inputs for way in self._ways[reference.node])
            yield from islice(below, _MAX_ORIGINS)
        elif computed := dict(node.row_columns):
            for sides in self._inputs(node):
                yield _Way(computed, sides, node.name, fields)
        else:
            yield _Way({}, (), node.name, fields)

    def _inputs(self, node: TypedNode) -> Iterator[Sides]:
        """Yield the sides that expressions of a node read, by prefix, for each combination of ways down."""
        inputs = [self._ways[reference.node] for reference in node.inputs]
        if node.lookup is not None:
            fields = {column.name: column for column in node.lookup.schema}
            inputs.append((_Way({}, (), node.lookup.table, fields),))
        for ways in islice(product(*inputs[: len(node.sides)]), _MAX_ORIGINS):
            yield tuple(zip(node.sides, ways, strict=True))


@dataclass(slots=True, eq=False)
class _Way:
    """A way down from a node."""

    computed: Mapping[str, Expression]
    """The columns that are computed from one row or one pair."""
    sides: Sides
    """The ways on from the inputs, by prefix of column names."""
    name: str
    """The stream, table or node that other columns are named by."""
    fields: Mapping[str, Field]
    found: dict[str, _Origin] = field(default_factory=dict)

    def named(self, column: str) -> ColumnRef:
        """Return the reference to a column that is not computed."""
        return ColumnRef(f"{self.name}.{column}", self.fields[column].type, True)


Sides = tuple[tuple[str, _Way], ...]


def _below(sides: Sides, column: str) -> tuple[_Way, str]:
    """Return where a column that expressions of a node read comes from, and its name there."""
    side, down = next(one for one in sides if column.startswith(one[0]))
    return down, column.removeprefix(side)


def _size(expression: Expression, known: Mapping[str, _Origin]) -> int:
    return sum(known[part.name].parts if isinstance(part, ColumnRef) else 1 for part in parts(expression))


def _resolved(expression: Expression, known: Mapping[str, _Origin]) -> Expression:
    """Replace columns by their origins; the result compares equal regardless of nullability."""
    if isinstance(expression, ColumnRef):
        origin = known.get(expression.name)
        return replace(expression, nullable=True) if origin is None else origin.expression
    if isinstance(expression, Call):
        arguments = tuple(_resolved(argument, known) for argument in expression.arguments)
        return replace(expression, arguments=arguments, nullable=True)
    return expression
