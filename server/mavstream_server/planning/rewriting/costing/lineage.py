"""Lineage: expresses predicates in terms of streams, so that they are recognized anywhere in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression
from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.planning.rewriting.expressions import substituted

_MAX_ORIGINS = 8


class Lineage:
    """Traces the columns of one plan down to the fields of streams and tables.

    Through a union there are several ways down: a predicate above it equals each of its copies below. A
    column that is not computed from one row or one pair is identified by its node, which no rule changes.
    """

    def __init__(self, typed: TypedPlan) -> None:
        self._typed = typed
        self._streams = {source.name: source.stream for source in typed.sources}
        self._known: dict[str, tuple[Mapping[str, Expression], ...]] = {}
        for node in typed.nodes.values():  # bottom-up, so a node's inputs are known before it
            self._known[node.name] = tuple(self._ways(node))

    def origins(self, node: str, expression: Expression) -> tuple[Expression, ...]:
        """Return an expression over a node's input in terms of streams, one for each way down.

        Expressions of joins name columns `l.x` and `r.x`.
        """
        found = (_resolved(expression, given) for given in self._given(self._typed.nodes[node]))
        return tuple(dict.fromkeys(found))

    def column(self, reference: InputRef, name: str) -> Expression:
        """Return the origin of a column; the first one if there are several ways down."""
        return self._known[reference.node][0][name]

    def _ways(self, node: TypedNode) -> Iterator[Mapping[str, Expression]]:
        """Yield the columns of a node with their origins, for each way down."""
        if node.name in self._streams:
            stream = self._streams[node.name]
            yield {f.name: ColumnRef(f"{stream}.{f.name}", f.type, f.nullable) for f in node.schema}
        elif node.passes_columns:
            below = (way for reference in node.inputs for way in self._known[reference.node])
            yield from islice(below, _MAX_ORIGINS)
        elif node.row_columns:
            own = _named_by(node)
            for given in self._given(node):
                yield {**own, **{name: _resolved(e, given) for name, e in node.row_columns}}
        else:
            yield _named_by(node)

    def _given(self, node: TypedNode) -> Iterator[Mapping[str, Expression]]:
        """Yield the columns that expressions of a node can read, with their origins, for each way down."""
        sides = [self._known[reference.node] for reference in node.inputs]
        if node.lookup is not None:
            table, fields = node.lookup.table, node.lookup.schema
            sides.append(({f.name: ColumnRef(f"{table}.{f.name}", f.type, True) for f in fields},))
        if node.sides == ("",):
            yield from sides[0]
            return
        for ways in islice(product(*sides), _MAX_ORIGINS):
            named = zip(node.sides, ways, strict=True)
            yield {side + name: expression for side, way in named for name, expression in way.items()}


def _resolved(expression: Expression, given: Mapping[str, Expression]) -> Expression:
    whole = substituted(expression, given)
    # An expression that would grow too large is identified by the names of its columns alone.
    return _without_nullability(expression if whole is None else whole)


def _without_nullability(expression: Expression) -> Expression:
    """Return an expression that compares equal regardless of the nullability of its columns."""
    if isinstance(expression, ColumnRef):
        return replace(expression, nullable=True)
    if isinstance(expression, Call):
        arguments = tuple(_without_nullability(argument) for argument in expression.arguments)
        return replace(expression, arguments=arguments, nullable=True)
    return expression


def _named_by(node: TypedNode) -> dict[str, Expression]:
    return {f.name: ColumnRef(f"{node.name}.{f.name}", f.type, True) for f in node.schema}
