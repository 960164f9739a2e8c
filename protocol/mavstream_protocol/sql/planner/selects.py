"""Planning of one SELECT: rows, joins, DISTINCT, aggregates and splits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.plans.plan import ELSE
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.sql.planner.builder import PlanBuilder, Span
from mavstream_protocol.sql.planner.grouping import GroupPlanner, is_grouped
from mavstream_protocol.sql.planner.joins import JoinDraft, JoinPlanner
from mavstream_protocol.sql.planner.outputs import (
    Output,
    check_distinct_names,
    computation,
    only_star,
    outputs_of,
    spans_of,
)
from mavstream_protocol.sql.planner.relations import Column, Names, Relation, all_columns
from mavstream_protocol.sql.planner.sources import SourcePlanner
from mavstream_protocol.sql.tree import Select, WindowCall
from mavstream_protocol.sql.windows import WINDOW_COLUMNS, with_hints


@dataclass(frozen=True, slots=True)
class WindowedRows:
    """The rows of a query over windows, whose list names the bounds of the window, too."""

    relation: Relation
    window: AggregateWindow
    outputs: tuple[str, ...]
    """The names of all columns in order, bounds included."""


class SelectPlanner:
    """Plans one SELECT; the name is that of its last node."""

    def __init__(self, builder: PlanBuilder, sources: SourcePlanner, select: Select, name: str) -> None:
        self._builder = builder
        self._source = builder.source
        self._sources = sources
        self._select = select
        self._name = name
        self._joins = JoinPlanner(builder, select.hints)

    def plan(self) -> Relation:
        """Add the nodes of the query; raises InvalidSql."""
        select = self._select
        self._check_hints()
        if select.distinct:
            return self._distinct()
        found = self._rows()
        if is_grouped(select):
            relation = self._where(self._one(found), "where")
            return GroupPlanner(self._builder, select, relation, self._name).plan()
        if isinstance(found, JoinDraft):
            return self._join_list(found)
        if found.window is not None:
            raise self._unused_window()
        return self._list(self._where(found, self._name if only_star(select.items) else "where"))

    def windowed_rows(self) -> WindowedRows:
        """Add the rows of a query over TUMBLE or HOP, for an operator that compares them per window."""
        select = self._select
        relation = self._one(self._rows())
        window = relation.window
        if window is None or is_grouped(select):
            raise self._error(
                "missing_window", "distinct rows need a window; write FROM TUMBLE(...) or HOP(...)"
            )
        relation = self._where(replace(relation, window=None), "where")
        bounds = [Column(relation.alias, name, name) for name in WINDOW_COLUMNS]
        own = [column for column in relation.columns if column.name not in WINDOW_COLUMNS]
        names = Names(self._source, [*own, *bounds])
        outputs = outputs_of(select.items, names, self._source)
        check_distinct_names(outputs, self._source)
        if not any(output.column in bounds for output in outputs):
            raise self._error(
                "ungrouped_window",
                "rows are distinct per window; add window_start, window_end to the list of SELECT",
            )
        listed = [output for output in outputs if output.column not in bounds]
        if not listed:
            raise self._error("missing_column", "select at least one column besides those of the window")
        if not only_star(select.items):
            relation = self._projected(relation, listed, Names(self._source, relation.columns), "rows")
        return WindowedRows(relation, window, tuple(output.name for output in outputs))

    def _rows(self) -> Relation | JoinDraft:
        """Return what FROM gives; the last join waits for the columns that are read of it."""
        found: Relation | JoinDraft = self._sources.relation(self._select.source, self._select.hints)
        for join in self._select.joins:
            left = self._one(found)
            right = self._sources.relation(join.right, self._select.hints)
            if join.kind == "anti":
                found = self._joins.anti(left, right, join, self._name)
            else:
                found = self._joins.draft(left, right, join)
        if isinstance(found, Relation) and found.table and not self._is_plain():
            raise self._error(
                "table_not_joined",
                "no rows flow out of a stored table; join it with a stream",
                self._source_span(),
            )
        return found

    def _one(self, found: Relation | JoinDraft) -> Relation:
        """Return a relation for what FROM gives, with all columns of a join, whose WHERE is done."""
        if isinstance(found, Relation):
            return found
        return self._joins.materialized(found)

    def _is_plain(self) -> bool:
        select = self._select
        return (
            only_star(select.items)
            and select.where is None
            and not select.distinct
            and not is_grouped(select)
        )

    def _where(self, relation: Relation, name: str) -> Relation:
        where = self._select.where
        if where is None:
            return relation
        span = (where.start, where.end)
        text = Names(self._source, relation.columns).rewritten(where)
        statistics = self._select.hints.statistics.get("select")
        node = self._builder.add(
            "select", name, span, {"where": span}, statistics, input=relation.node, where=text
        )
        return replace(relation, node=node)

    def _list(self, relation: Relation) -> Relation:
        """Add the project of a list, unless it is `*`, and the split of a hint."""
        select = self._select
        if only_star(select.items):
            return self._split(relation.named("")) if select.hints.split else relation.named("")
        names = Names(self._source, relation.columns)
        outputs = outputs_of(select.items, names, self._source)
        check_distinct_names(outputs, self._source)
        name = "columns" if select.hints.split else self._name
        projected = self._projected(relation, outputs, names, name)
        return self._split(projected) if select.hints.split else projected

    def _projected(self, relation: Relation, outputs: list[Output], names: Names, name: str) -> Relation:
        statistics = self._select.hints.statistics.get("project")
        node = self._builder.add(
            "project",
            name,
            self._span,
            spans_of(outputs),
            statistics,
            input=relation.node,
            compute=computation(outputs, names),
        )
        handed_on = {o.name: o.column.reference for o in outputs if o.column is not None}
        times = frozenset(new for new, old in handed_on.items() if old in relation.times)
        columns = all_columns([output.name for output in outputs])
        return Relation(node, columns, times, made_by_window=relation.made_by_window)

    def _split(self, relation: Relation) -> Relation:
        hints = self._select.hints
        names = Names(self._source, relation.columns)
        outputs = {item.alias.value: names.rewritten(item.expression) for item in hints.split if item.alias}
        spans = {
            f"outputs/{item.alias.value}": (item.expression.start, item.expression.end)
            for item in hints.split
            if item.alias
        }
        statistics = hints.statistics.get("split")
        node = self._builder.add(
            "split", self._name, self._span, spans, statistics, input=relation.node, outputs=outputs
        )
        return replace(relation, node=node, outputs=(*outputs, ELSE))

    def _distinct(self) -> Relation:
        rows, hints = self.windowed_rows(), self._select.hints
        node = self._builder.add(
            "distinct",
            self._name,
            self._span,
            {},
            hints.statistics.get("distinct"),
            input=rows.relation.node,
            window=with_hints(rows.window, hints, self._source),
        )
        relation = Relation(node, all_columns(self._builder.schema(node).names), made_by_window=True)
        return in_order(self._builder, relation, rows.outputs, self._span)

    def _join_list(self, draft: JoinDraft) -> Relation:
        """Let the join compute the list of SELECT, as far as it can."""
        select = self._select
        if select.where is not None and draft.outer:
            return self._list(self._where(self._joins.materialized(draft), "where"))
        if select.where is not None:
            text = Names(self._source, draft.columns).rewritten(select.where)
            draft = replace(draft, where=(*draft.where, text))
        names = Names(self._source, draft.visible)
        if only_star(select.items) and self._plain_names(draft):
            node = self._joins.finish(draft, None, {}, self._name)
            columns = all_columns(self._builder.schema(node).names)
            references = {c.name: c.reference for c in reversed(draft.columns)}
            return self._unwindowed(self._joins.result(draft, node, columns, references))
        items = outputs_of(
            select.items,
            Names(self._source, draft.columns) if only_star(select.items) else names,
            self._source,
        )
        if only_star(select.items) and draft.window is not None:
            items += [Output(n, Column("", n, n, bound=True), None, self._span) for n in WINDOW_COLUMNS]
        check_distinct_names(items, self._source)
        bounds = [o for o in items if o.column is not None and o.column.bound]
        others = [o for o in items if o not in bounds]
        if (
            not others
            or any(_reads_bounds(o, names) for o in others)
            or any(o.name in WINDOW_COLUMNS for o in others)
        ):
            return self._list(self._joins.materialized(draft))
        node = self._joins.computed(draft, others, self._name)
        references = {o.name: o.column.reference for o in others if o.column is not None}
        columns = all_columns(self._builder.schema(node).names)
        relation = self._unwindowed(self._joins.result(draft, node, columns, references))
        if any(o.name != o.column.reference for o in bounds if o.column is not None):
            listed = [
                Output(o.name, o.column if o in bounds else Column("", o.name, o.name), None, o.span)
                for o in items
            ]
            return self._projected(relation, listed, Names(self._source, columns), self._name)
        return in_order(self._builder, relation, tuple(o.name for o in items), self._span)

    def _unwindowed(self, relation: Relation) -> Relation:
        if relation.window is not None:
            raise self._unused_window()
        return relation

    def _plain_names(self, draft: JoinDraft) -> bool:
        """Whether all columns of both sides can be taken as they are: equal names are keys of a table."""
        left, right = ({c.name for c in side.columns} for side in (draft.left, draft.right))
        shared = {one for one, other in draft.condition.keys if one == other} if draft.right.table else set()
        return not (left & right) - shared and all(c.reference[2:] == c.name for c in draft.columns)

    def _check_hints(self) -> None:
        """Refuse hints about what the query does not have; raises InvalidSql."""
        select, hints = self._select, self._select.hints
        grouped = is_grouped(select)
        items = (select.source, *(join.right for join in select.joins))
        has_window = any(item.window for item in items) or any(isinstance(k, WindowCall) for k in select.keys)
        of_window = hints.partial or hints.begin is not None or hints.until is not None
        absent = [op for op in hints.statistics if op not in _operators_of(select)]
        misplaced = {
            "SCALED is for queries with aggregates": hints.scaled and not grouped,
            "ORDER(time) is for joins, or stands behind UNION ALL": hints.ordered and not select.joins,
            "SPLIT is for queries without aggregates": bool(hints.split) and (grouped or select.distinct),
            "PARTIAL, BEGIN and UNTIL are for windows": of_window and not has_window,
            f"this query has no {' and no '.join(absent)}": bool(absent),
        }
        for detail, wrong in misplaced.items():
            if wrong:
                raise self._source.error(
                    "invalid_hint", f"{detail}; leave it out here", hints.start, hints.end
                )

    @property
    def _span(self) -> Span:
        return self._select.start, self._select.end

    def _source_span(self) -> Span:
        return self._select.source.start, self._select.source.end

    def _unused_window(self) -> InvalidSql:
        call = self._select.source.window
        return self._error(
            "unused_window",
            "a window answers when it closes: use GROUP BY window_start, window_end with aggregates, "
            "SELECT DISTINCT, or a join of two windowed relations",
            self._source_span() if call is None else (call.start, call.end),
        )

    def _error(self, reason: str, detail: str, span: Span | None = None) -> InvalidSql:
        return self._source.error(reason, detail, *(span or self._span))


def in_order(builder: PlanBuilder, relation: Relation, wanted: tuple[str, ...], span: Span) -> Relation:
    """Return a relation with its columns as wanted; a project is added only if they differ."""
    if relation.names == wanted:
        return relation
    compute = {name: Output(name, Column("", name, name), None, span) for name in wanted}
    names = Names(builder.source, relation.columns)
    node = builder.add(
        "project", "project", span, input=relation.node, compute=computation(compute.values(), names)
    )
    times = relation.times & frozenset(wanted)
    return Relation(node, all_columns(wanted), times, made_by_window=relation.made_by_window)


def _reads_bounds(output: Output, names: Names) -> bool:
    """Whether an expression reads the bounds of the common window, which a join cannot."""
    if output.snippet is None or output.column is not None:
        return False
    waiting = [output.snippet.tree]
    while waiting:
        tree = waiting.pop()
        if tree.kind == "column" and any(column.bound for column in names.matching(tree.value)):
            return True
        waiting += tree.operands
    return False


def _operators_of(select: Select) -> set[str]:
    """Return the operators that a SELECT makes, for which it can have statistics."""
    joins = {"except" if join.kind == "anti" else "join" for join in select.joins}
    made = {
        "select": select.where is not None,
        "project": not only_star(select.items),
        "aggregate": is_grouped(select),
        "distinct": select.distinct,
        "split": bool(select.hints.split),
    }
    return {"source", *joins, *(operator for operator, there in made.items() if there)}
