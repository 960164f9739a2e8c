"""Plans as SQL: one query per node in WITH, with simple nodes merged into the query that reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any, TypeVar

from mavstream_protocol.expressions.intervals import format_interval
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import (
    AggregateNode,
    DistinctNode,
    ExceptNode,
    InputRef,
    JoinNode,
    Plan,
    PlanNode,
    ProjectNode,
    SelectNode,
    SourceNode,
    SplitNode,
    TableNode,
    UnionNode,
)
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.sql.planner.builder import Catalog
from mavstream_protocol.sql.windows import ROW_TIME, WINDOW_COLUMNS
from mavstream_protocol.sql.writer.texts import (
    expression_text,
    item_text,
    name_text,
    split_hint,
    statistics_hints,
    window_hints,
    window_text,
)

Kind = TypeVar("Kind", bound=PlanNode)
Hints = tuple[str, ...]
"""Hints as they are written."""


@dataclass(frozen=True, slots=True)
class _Block:
    """The clauses of one SELECT."""

    source: str
    items: tuple[str, ...] = ("*",)
    distinct: bool = False
    where: str | None = None
    keys: tuple[str, ...] = ()
    having: str | None = None
    hints: tuple[str, ...] = field(default=())

    def text(self) -> str:
        hints = f"/*+ {', '.join(self.hints)} */ " if self.hints else ""
        distinct = "DISTINCT " if self.distinct else ""
        lines = [f"SELECT {hints}{distinct}{', '.join(self.items)}", f"FROM {self.source}"]
        if self.where is not None:
            lines.append(f"WHERE {self.where}")
        if self.keys:
            lines.append(f"GROUP BY {', '.join(self.keys)}")
        if self.having is not None:
            lines.append(f"HAVING {self.having}")
        return "\n".join(lines)


def plan_to_sql(plan: Plan, catalog: Catalog) -> str:
    """Return the SQL of a plan; reading it gives the same plan, but for the names of nodes.

    Raises InvalidPlan if the plan does not fit the streams and tables.
    """
    return PlanWriter(plan, catalog).text()


class PlanWriter:
    """Writes the nodes of one plan."""

    def __init__(self, plan: Plan, catalog: Catalog) -> None:
        self._plan = plan
        self._catalog = catalog
        self._typed = infer(plan, catalog.streams, catalog.tables)
        self._reads = Counter(
            reference.node for name in plan.nodes for reference in plan.inputs(name).values()
        )
        self._names = self._query_names()
        self._named: set[str] = set()

    def text(self) -> str:
        """Return the whole query."""
        root = InputRef.parse(self._plan.root)
        final = f"SELECT *\nFROM {self._source(self._plan.root)}" if root.output else self._body(root.node)
        queries: list[str] = []
        for name in reversed(list(self._typed.nodes)):  # readers first: they decide what has a name
            if name in self._named:
                body = indent(self._body(name), "  ")
                queries.insert(0, f"{name_text(self._names[name])} AS (\n{body}\n)")
        return f"WITH {', '.join(queries)}\n{final}" if queries else final

    def _query_names(self) -> dict[str, str]:
        """Return a name for each node that hides no stream or table."""
        taken = {name.lower() for name in (*self._catalog.streams, *self._catalog.tables)}
        names: dict[str, str] = {}
        for node in self._plan.nodes:
            found, number = node, 1
            while found.lower() in taken:
                number += 1
                found = f"{node[:58]}_{number}"
            taken.add(found.lower())
            names[node] = found
        return names

    def _body(self, name: str) -> str:
        node = self._plan.nodes[name]
        return WRITERS[type(node)](
            self, node, tuple(statistics_hints(node.op, self._typed.nodes[name].hints))
        )

    def _source(self, reference: str) -> str:
        """Return what FROM names for an input: a stream or table itself, or a query of WITH."""
        name, output = InputRef.parse(reference)
        leaf = _LEAVES.get(type(self._plan.nodes[name]))
        if leaf is not None and self._read_once(name):
            return leaf(self._plan.nodes[name])
        self._named.add(name)
        written = name_text(self._names[name])
        return f"{written}.{name_text(output)}" if output else written

    def _read_once(self, name: str) -> bool:
        """Whether a node can be written in its reader: nothing else reads it, and it has no hints."""
        return self._reads[name] == 1 and self._typed.nodes[name].hints is None

    def _merged(self, reference: str, kind: type[Kind]) -> Kind | None:
        """Return the node of an input if it is of a kind and can be written in the query that reads it."""
        name = InputRef.parse(reference).node
        node: PlanNode = self._plan.nodes[name]
        return node if type(node) is kind and self._read_once(name) else None

    def _filtered(self, reference: str) -> tuple[str, str | None]:
        """Return an input below the condition that is merged with its reader, and that condition."""
        select = self._merged(reference, SelectNode)
        if select is None or self._merged(select.input, AggregateNode) is not None:
            return reference, None
        return select.input, expression_text(select.where)

    def _windowed(self, reference: str, window: AggregateWindow) -> str:
        return window_text(self._source(reference), self.time(reference), window)

    def time(self, reference: str) -> str | None:
        """Return the column with the time of the rows, where it is still that of the stream."""
        node = self._plan.nodes[InputRef.parse(reference).node]
        find = _TIMES.get(type(node))
        return None if find is None else find(self, node)

    def event_time(self, stream: str) -> str | None:
        """Return the column with the time of a stream's rows."""
        return self._catalog.streams[stream].event_time

    def leaf(self, node: SourceNode | TableNode, hints: Hints) -> str:
        """Write a query of all rows of a stream or table."""
        return _Block(_LEAVES[type(node)](node), hints=hints).text()

    def select(self, node: SelectNode, hints: Hints) -> str:
        """Write WHERE, or HAVING above an aggregate."""
        where = expression_text(node.where)
        aggregate = self._merged(node.input, AggregateNode)
        if aggregate is not None and not hints:
            return replace(self._grouped(aggregate, ()), having=where).text()
        return _Block(self._source(node.input), where=where, hints=hints).text()

    def project(self, node: ProjectNode, hints: Hints) -> str:
        """Write a list of columns."""
        below, where = self._filtered(node.input)
        items = tuple(item_text(name, text) for name, text in node.compute.items())
        return _Block(self._source(below), items, where=where, hints=hints).text()

    def split(self, node: SplitNode, hints: Hints) -> str:
        """Write all columns with the conditions of the outputs as a hint."""
        below, where = self._filtered(node.input)
        return _Block(self._source(below), where=where, hints=(split_hint(node.outputs), *hints)).text()

    def union(self, node: UnionNode, hints: Hints) -> str:
        """Write UNION ALL, by name if the inputs have their columns in different orders."""
        inputs = [self._operand(reference) for reference in node.inputs]
        orders = {self._typed.nodes[InputRef.parse(ref).node].schema.names for ref in node.inputs}
        hints = ("ORDER(time)",) * (node.order is not None) + hints
        union = "UNION ALL" if len(orders) == 1 else "UNION ALL BY NAME"
        first, *others = inputs
        hint = f" /*+ {', '.join(hints)} */" if hints else ""
        text = f"{first}\n{union}{hint}\n{others[0]}"
        return "".join([text, *(f"\n{union}\n{other}" for other in others[1:])])

    def _operand(self, reference: str) -> str:
        """Return an input of a union: its own query if nothing else reads it."""
        node, output = InputRef.parse(reference)
        if output is not None or self._reads[node] > 1:
            return f"SELECT *\nFROM {self._source(reference)}"
        body = self._body(node)
        return f"(\n{indent(body, '  ')}\n)" if self._plan.nodes[node].op == "union" else body

    def except_(self, node: ExceptNode, hints: Hints) -> str:
        """Write an anti join of whole rows."""
        left, right = (self._windowed(ref, node.window) for ref in (node.left, node.right))
        hints = (*window_hints(node.window), *hints)
        source = f"{left} l\nLEFT ANTI JOIN {right} r ON l IS NOT DISTINCT FROM r"
        return _Block(source, hints=hints).text()

    def distinct(self, node: DistinctNode, hints: Hints) -> str:
        """Write SELECT DISTINCT over a window."""
        below = node.input
        items: tuple[str, ...] = ("*",)
        project = self._merged(node.input, ProjectNode)
        if project is not None and not self._has_bounds(project.input):
            below = project.input
            items = (*(item_text(name, text) for name, text in project.compute.items()), *WINDOW_COLUMNS)
        below, where = self._filtered(below)
        hints = (*window_hints(node.window), *hints)
        source = self._windowed(below, node.window)
        return _Block(source, items, True, where, hints=hints).text()

    def _has_bounds(self, reference: str) -> bool:
        names = self._typed.nodes[InputRef.parse(reference).node].schema.names
        return not set(names).isdisjoint(WINDOW_COLUMNS)

    def aggregate(self, node: AggregateNode, hints: Hints) -> str:
        """Write GROUP BY over a window."""
        return self._grouped(node, hints).text()

    def _grouped(self, node: AggregateNode, hints: Hints) -> _Block:
        below, where = self._filtered(node.input)
        by = tuple(name_text(name) for name in node.by)
        computed = tuple(item_text(name, text) for name, text in node.compute.items())
        return _Block(
            self._windowed(below, node.window),
            (*by, *computed, *WINDOW_COLUMNS),
            where=where,
            keys=(*by, *WINDOW_COLUMNS),
            hints=(*window_hints(node.window), *("SCALED",) * node.scaled, *hints),
        )

    def join(self, node: JoinNode, hints: Hints) -> str:
        """Write a join with its keys, its distance in time or its window, and its conditions."""
        left, right = (self._source(ref) for ref in (node.left, node.right))
        conditions = [f"l.{name_text(one)} = r.{name_text(other)}" for one, other in node.on]
        if node.within is not None:
            ours, theirs = (self.time(ref) or ROW_TIME for ref in (node.left, node.right))
            low, high = format_interval(node.within.before), format_interval(node.within.after)
            time = f"l.{name_text(ours)}"
            conditions.append(f"r.{name_text(theirs)} BETWEEN {time} - {low} AND {time} + {high}")
        own = ["ORDER(time)"] * (node.order is not None)
        if node.window is not None:
            left, right = (self._windowed(ref, node.window) for ref in (node.left, node.right))
            conditions = [*(f"l.{name} = r.{name}" for name in WINDOW_COLUMNS), *conditions]
            own += window_hints(node.window)
        where = None if node.where is None else expression_text(node.where)
        if where is not None and node.how == "left":
            conditions.append(f"(({where}))")  # in two pairs of parentheses it is no key
            where = None
        items = ["*"]
        if node.compute is not None:
            items = [item_text(name, text) for name, text in node.compute.items()]
            items += WINDOW_COLUMNS if node.window is not None else ()
        join = "LEFT JOIN" if node.how == "left" else "JOIN"
        source = f"{left} l\n{join} {right} r ON {' AND '.join(conditions)}"
        return _Block(source, tuple(items), where=where, hints=(*own, *hints)).text()


def _renamed_time(writer: PlanWriter, node: ProjectNode) -> str | None:
    below = writer.time(node.input)
    return next((name for name, text in node.compute.items() if text == below), None)


WRITERS: Mapping[type[PlanNode], Callable[[PlanWriter, Any, Hints], str]] = {
    SourceNode: PlanWriter.leaf,
    TableNode: PlanWriter.leaf,
    SelectNode: PlanWriter.select,
    ProjectNode: PlanWriter.project,
    SplitNode: PlanWriter.split,
    UnionNode: PlanWriter.union,
    ExceptNode: PlanWriter.except_,
    DistinctNode: PlanWriter.distinct,
    AggregateNode: PlanWriter.aggregate,
    JoinNode: PlanWriter.join,
}
"""How the query of each node is written."""
_LEAVES: Mapping[type[PlanNode], Callable[[Any], str]] = {
    SourceNode: lambda node: name_text(node.origin),
    TableNode: lambda node: name_text(node.table),
}
_TIMES: Mapping[type[PlanNode], Callable[[PlanWriter, Any], str | None]] = {
    SourceNode: lambda writer, node: writer.event_time(node.origin),
    SelectNode: lambda writer, node: writer.time(node.input),
    SplitNode: lambda writer, node: writer.time(node.input),
    ProjectNode: _renamed_time,
}
