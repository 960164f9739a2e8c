"""Planning of whole queries: WITH, set operations and the root of the plan."""

from __future__ import annotations

from dataclasses import replace

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.plans.windows import TimeWindow
from mavstream_protocol.sql.cursor import Cursor
from mavstream_protocol.sql.planner.builder import Catalog, PlanBuilder
from mavstream_protocol.sql.planner.outputs import Output, computation
from mavstream_protocol.sql.planner.relations import Column, Names, Relation, all_columns
from mavstream_protocol.sql.planner.selects import SelectPlanner, in_order
from mavstream_protocol.sql.planner.sources import NamedQueries, SourcePlanner
from mavstream_protocol.sql.query_parser import QueryParser
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.tree import Query, QueryHints, Select, SetOperation
from mavstream_protocol.sql.windows import with_hints


def plan_query(source: SqlSource, query: Query, catalog: Catalog) -> Plan:
    """Return the plan of a query; raises InvalidSql."""
    builder = PlanBuilder(source, catalog)
    relation = _QueryPlanner(builder, NamedQueries()).query(query, "result")
    span = (query.start, query.end)
    if relation.table:
        raise source.error(
            "table_not_joined", "no rows flow out of a stored table; join it with a stream", *span
        )
    if relation.outputs:
        detail = "a split is read output by output; name the query with WITH and read for example split.else"
        raise source.error("unknown_output", detail, *span)
    return builder.plan(relation.node)


def read_query(cursor: Cursor, catalog: Catalog) -> Plan:
    """Read and plan the query at a cursor; raises InvalidSql."""
    return plan_query(cursor.source, QueryParser(cursor).query(), catalog)


class _QueryPlanner:
    """Plans queries that can read those that WITH named before them."""

    def __init__(self, builder: PlanBuilder, queries: NamedQueries) -> None:
        self._builder = builder
        self._source = builder.source
        self._queries = queries

    def query(self, query: Query, name: str) -> Relation:
        """Add the nodes of a query and of those that it names; raises InvalidSql."""
        if not query.named:
            return self._body(query.body, name)
        inner = _QueryPlanner(self._builder, NamedQueries(self._queries))
        for alias, named in query.named:
            inner._queries.add(alias, inner.query(named, alias.value))
        relation = inner._body(query.body, name)
        for unread in inner._queries.unread.values():
            detail = f"nothing reads the query `{unread.value}`; leave it out"
            raise self._source.error("unused_query", detail, unread.start, unread.end)
        return relation

    def _body(self, body: Select | SetOperation, name: str) -> Relation:
        if isinstance(body, SetOperation):
            return self._union(body, name) if body.kind == "union" else self._except(body, name)
        return self._select(body, name).plan()

    def _select(self, select: Select, name: str) -> SelectPlanner:
        sources = SourcePlanner(self._builder, self._queries, self.query)
        return SelectPlanner(self._builder, sources, select, name)

    def _union(self, operation: SetOperation, name: str) -> Relation:
        inputs = [self.query(query, "input") for query in operation.inputs]
        span = (operation.start, operation.end)
        for relation, query in zip(inputs, operation.inputs, strict=True):
            if relation.table or relation.outputs:
                detail = (
                    "a stored table or a split cannot be part of UNION ALL; join the table, or name an output"
                )
                raise self._source.error("table_not_joined", detail, query.start, query.end)
        self._check_hints(operation)
        first = inputs[0]
        if not operation.by_name:
            inputs = [
                self._like(first, relation, query)
                for relation, query in zip(inputs, operation.inputs, strict=True)
            ]
        node = self._builder.add(
            "union",
            name,
            span,
            {f"inputs/{n}": (query.start, query.end) for n, query in enumerate(operation.inputs)},
            operation.hints.statistics.get("union"),
            inputs=tuple(relation.node for relation in inputs),
            order="time" if operation.hints.ordered else None,
        )
        times = frozenset.intersection(*(relation.times for relation in inputs))
        made_by_window = all(relation.made_by_window for relation in inputs)
        return Relation(node, all_columns(first.names), times, made_by_window=made_by_window)

    def _check_hints(self, operation: SetOperation) -> None:
        """Refuse hints that a set operation does not have."""
        hints = operation.hints
        plain = QueryHints(statistics=hints.statistics, start=hints.start, end=hints.end)
        union = operation.kind == "union"
        allowed = replace(
            plain,
            ordered=hints.ordered and union,
            partial=hints.partial and not union,
            begin=None if union else hints.begin,
            until=None if union else hints.until,
        )
        if hints != allowed or set(hints.statistics) - {operation.kind}:
            names = "ORDER(time) and HINT(union, ...)" if union else "windows and HINT(except, ...)"
            detail = f"{operation.kind.upper()} takes hints of {names} alone; leave others out"
            raise self._source.error("invalid_hint", detail, hints.start, hints.end)

    def _like(self, first: Relation, other: Relation, query: Query) -> Relation:
        """Return a relation with the column names of the first one, in order, as SQL matches them."""
        if other.names == first.names:
            return other
        span = (query.start, query.end)
        if len(other.names) != len(first.names):
            raise self._source.error(
                "schema_mismatch",
                f"both sides must have as many columns: {len(first.names)} ({', '.join(first.names)}) "
                f"and {len(other.names)} ({', '.join(other.names)})",
                *span,
            )
        pairs = list(zip(first.names, other.names, strict=True))
        renamed = [Output(new, Column("", old, old), None, span) for new, old in pairs]
        names = Names(self._source, other.columns)
        node = self._builder.add(
            "project", "renamed", span, input=other.node, compute=computation(renamed, names)
        )
        times = frozenset(new for new, old in pairs if old in other.times)
        return Relation(node, all_columns(first.names), times, made_by_window=other.made_by_window)

    def _except(self, operation: SetOperation, name: str) -> Relation:
        """Add the distinct rows of the left query that the right one does not have, per window."""
        sides = []
        for query in operation.inputs:
            if query.named or not isinstance(query.body, Select):
                raise self._no_windows(query)
            sides.append(self._select(query.body, "side").windowed_rows())
        left, right = sides
        self._check_hints(operation)
        span = (operation.start, operation.end)
        if left.window != right.window or not _tumbling(left.window):
            raise self._source.error(
                "invalid_window",
                "EXCEPT compares rows of the same TUMBLE windows by time; for others use LEFT ANTI JOIN",
                *span,
            )
        other = self._like(left.relation, right.relation, operation.inputs[1])
        window = with_hints(left.window, operation.hints, self._source)
        node = self._builder.add(
            "except",
            "except_all",
            span,
            {},
            operation.hints.statistics.get("except"),
            left=left.relation.node,
            right=other.node,
            window=window,
        )
        rows = in_order(self._builder, Relation(node, all_columns(())), left.relation.names, span)
        node = self._builder.add("distinct", name, span, input=rows.node, window=window)
        relation = Relation(node, all_columns(self._builder.schema(node).names), made_by_window=True)
        return in_order(self._builder, relation, left.outputs, span)

    def _no_windows(self, query: Query) -> InvalidSql:
        return self._source.error(
            "missing_window",
            "both sides of EXCEPT read windows: SELECT room, window_start, window_end FROM TUMBLE(...)",
            query.start,
            query.end,
        )


def _tumbling(window: object) -> bool:
    return isinstance(window, TimeWindow) and window.kind == "tumbling"
