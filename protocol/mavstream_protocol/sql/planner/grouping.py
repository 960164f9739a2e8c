"""GROUP BY: keys, aggregates, HAVING, and the columns that are computed from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.expressions.functions import AGGREGATE_ALIASES, AGGREGATES
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.sql.cursor import Snippet
from mavstream_protocol.sql.planner.builder import PlanBuilder, Span
from mavstream_protocol.sql.planner.outputs import Output, check_distinct_names
from mavstream_protocol.sql.planner.relations import Names, Relation, all_columns, quoted, spliced
from mavstream_protocol.sql.planner.sources import check_time
from mavstream_protocol.sql.tree import Item, Select, Star, WindowCall
from mavstream_protocol.sql.windows import WINDOW_COLUMNS, with_hints


def is_aggregate(tree: Tree) -> bool:
    """Whether a tree is a call of an aggregate."""
    return tree.kind == "call" and AGGREGATE_ALIASES.get(tree.value, tree.value) in AGGREGATES


def has_aggregate(tree: Tree) -> bool:
    """Whether a tree contains a call of an aggregate."""
    return is_aggregate(tree) or any(map(has_aggregate, tree.operands))


def is_grouped(select: Select) -> bool:
    """Whether a query computes aggregates."""
    listed = [item.expression.tree for item in select.items if isinstance(item, Item)]
    return bool(select.keys) or select.having is not None or any(map(has_aggregate, listed))


@dataclass(slots=True)
class _Column:
    """A column of the result: its name and its expression above the aggregate."""

    name: str
    text: str
    span: Span


@dataclass(slots=True)
class _Grouping:
    """The keys of GROUP BY."""

    window: AggregateWindow | None = None
    by: dict[str, Span] = field(default_factory=dict)
    """Columns of the input, with their places."""
    computed: dict[str, Snippet] = field(default_factory=dict)
    """Keys that are expressions, by the names of the columns that hold them."""


class GroupPlanner:
    """Plans one SELECT with aggregates over a relation."""

    def __init__(self, builder: PlanBuilder, select: Select, relation: Relation, name: str) -> None:
        self._builder = builder
        self._source = builder.source
        self._select = select
        self._relation = relation
        self._name = name
        self._names = Names(self._source, relation.columns)
        self._grouping = _Grouping(window=relation.window)
        self._compute: dict[str, str] = {}
        self._spans: dict[str, Span] = {}

    def plan(self) -> Relation:
        """Add the nodes of the query; raises InvalidSql."""
        select = self._select
        self._read_keys()
        window = self._grouping.window
        if window is None:
            raise self._no_window()
        self._check_session_keys()
        if self._grouping.computed:
            self._project_keys()
        columns = [self._column(item) for item in select.items]
        having = None if select.having is None else self._above(select.having)
        if not self._compute:
            self._compute[self._free("rows")] = "count(*)"
        hints, span = select.hints, (select.start, select.end)
        by = (*self._grouping.by, *self._grouping.computed)
        node = self._builder.add(
            "aggregate",
            self._name,
            span,
            self._spans,
            hints.statistics.get("aggregate"),
            input=self._relation.node,
            by=by,
            window=with_hints(window, hints, self._source),
            compute=self._compute,
            scaled=hints.scaled or None,
        )
        if having is not None:
            assert select.having is not None
            place = (select.having.start, select.having.end)
            node = self._builder.add("select", "having", place, {"where": place}, input=node, where=having)
        return self._projected(node, columns, (*by, *self._compute, *WINDOW_COLUMNS), span)

    def _projected(self, node: str, columns: list[_Column], plain: tuple[str, ...], span: Span) -> Relation:
        """Add a project unless the list names all columns of the aggregate in order."""
        check_distinct_names([Output(c.name, None, None, c.span) for c in columns], self._source)
        if tuple(c.name for c in columns) != plain or any(c.text != quoted(c.name) for c in columns):
            compute = {c.name: c.text for c in columns}
            spans = {f"compute/{c.name}": c.span for c in columns}
            statistics = self._select.hints.statistics.get("project")
            node = self._builder.add(
                "project", "project", span, spans, statistics, input=node, compute=compute
            )
        return Relation(node, all_columns(self._builder.schema(node).names), made_by_window=True)

    def _read_keys(self) -> None:
        """Sort the keys of GROUP BY: windows, columns and expressions."""
        named = self._relation.window is None
        for key in self._select.keys:
            if isinstance(key, WindowCall):
                self._take_window(key)
                named = True
            elif self._relation.window is not None and self._is_window_column(key):
                named = True
            else:
                self._read_key(key)
        if not named:
            raise self._error(
                "ungrouped_window",
                "aggregates of a window are grouped by it; add window_start, window_end to GROUP BY",
                self._select.start,
                self._select.end,
            )

    def _check_session_keys(self) -> None:
        """Refuse SESSION(... PARTITION BY ...) by other columns than GROUP BY; raises InvalidSql."""
        names = self._relation.session_keys
        if names is None:
            return
        found = [self._names.matching(name.value) for name in names]
        keys = {columns[0].reference for columns in found if columns}
        if self._grouping.computed or not all(found) or keys != {*self._grouping.by}:
            raise self._error(
                "invalid_window",
                "each group has its own sessions, so PARTITION BY must name the columns of GROUP BY; write "
                "the same columns, or leave PARTITION BY out",
                names[0].start,
                names[-1].end,
            )

    def _take_window(self, call: WindowCall) -> None:
        if self._grouping.window is not None:
            raise self._error(
                "invalid_window",
                "a query is grouped by one window; leave the others out",
                call.start,
                call.end,
            )
        check_time(self._builder, self._relation, call)
        self._grouping.window = call.window

    def _read_key(self, key: Snippet) -> None:
        """Take a column, the number or alias of an item, or an expression."""
        snippet = key
        item = self._item_of(key)
        if item is not None:
            snippet = item.expression
        if snippet.tree.kind == "column":
            column = self._names.find(snippet.tree, snippet)
            self._grouping.by[column.reference] = (key.start, key.end)
            return
        text = self._names.rewritten(snippet)
        if item is None:
            same = [other for other in self._items() if self._is_text(other.expression, text)]
            item = same[0] if same else None
        alias = item.alias.value if item is not None and item.alias is not None else "key"
        self._grouping.computed[self._free(alias)] = snippet

    def _item_of(self, key: Snippet) -> Item | None:
        """Return the item of SELECT that a number or an alias in GROUP BY means."""
        if key.tree.kind == "number":
            number = int(key.text) if key.text.isdecimal() else 0
            if not 1 <= number <= len(self._select.items):
                detail = f"GROUP BY {key.text}: the list of SELECT has {len(self._select.items)} columns"
                raise self._error("unknown_field", detail, key.start, key.end)
            item = self._select.items[number - 1]
            return item if isinstance(item, Item) else None
        if key.tree.kind != "column" or self._names.matching(key.tree.value):
            return None
        for item in self._items():
            if item.alias is not None and item.alias.value.lower() == key.tree.value.lower():
                return item
        return None

    def _items(self) -> Iterator[Item]:
        return (item for item in self._select.items if isinstance(item, Item))

    def _is_text(self, snippet: Snippet, text: str) -> bool:
        return not has_aggregate(snippet.tree) and self._names.rewritten(snippet) == text

    def _project_keys(self) -> None:
        """Add a project that computes the keys that are expressions beside all columns."""
        relation, keys = self._relation, self._grouping.computed
        compute = {name: quoted(name) for name in relation.names}
        compute |= {name: self._names.rewritten(snippet) for name, snippet in keys.items()}
        spans = {f"compute/{name}": (s.start, s.end) for name, s in keys.items()}
        span = (self._select.start, self._select.end)
        node = self._builder.add("project", "keys", span, spans, input=relation.node, compute=compute)
        self._relation = Relation(node, relation.columns, relation.times, window=relation.window)

    def _column(self, item: Star | Item) -> _Column:
        """Return a column of the result, and compute in the aggregate what it needs."""
        if isinstance(item, Star):
            raise self._error(
                "unsupported_syntax", "name the columns of a query with aggregates", item.start, item.end
            )
        snippet, tree = item.expression, item.expression.tree
        span = (snippet.start, snippet.end)
        name = self._output_name(item)
        whole = self._known_column(snippet, tree)
        renamed = whole in self._grouping.by and name != whole and self._can_compute(name)
        if whole is not None and not renamed:
            return _Column(name, quoted(whole), span)
        if self._reads_window(tree) or not self._can_compute(name):
            return _Column(name, self._above(snippet), span)
        self._check_grouped(snippet, tree)
        self._compute[name] = self._names.rewritten(snippet)
        self._spans[f"compute/{name}"] = span
        return _Column(name, quoted(name), span)

    def _output_name(self, item: Item) -> str:
        tree = item.expression.tree
        if item.alias is not None:
            return item.alias.value
        if tree.kind == "column":
            return tree.value.rpartition(".")[2]
        if tree.kind == "call":
            return tree.value
        detail = f"name the column `{item.expression.text}` with AS, for example AS value"
        raise self._error("missing_name", detail, item.expression.start, item.expression.end)

    def _can_compute(self, name: str) -> bool:
        taken = (*self._grouping.by, *self._grouping.computed, *self._compute, *WINDOW_COLUMNS)
        return name not in taken

    def _known_column(self, snippet: Snippet, tree: Tree) -> str | None:
        """Return the column of the aggregate that a tree is: a key, a bound of the window, an error."""
        if tree.kind == "column":
            if tree.value.lower().rpartition(".")[2] in WINDOW_COLUMNS:
                return tree.value.lower().rpartition(".")[2]
            of = tree.value.removesuffix("_error")
            if self._select.hints.scaled and of != tree.value and of in self._compute:
                return tree.value
            found = self._names.matching(tree.value)
            if len(found) == 1 and found[0].reference in self._grouping.by:
                return found[0].reference
        elif self._grouping.computed and not has_aggregate(tree):
            text = snippet.text[tree.start : tree.end]
            for name, key in self._grouping.computed.items():
                if key.text == text or (
                    tree is snippet.tree and self._is_text(snippet, self._names.rewritten(key))
                ):
                    return name
        return None

    def _above(self, snippet: Snippet) -> str:
        """Return an expression over the columns of the aggregate, which computes the calls in it."""
        return spliced(snippet, lambda tree: self._replacement(snippet, tree))

    def _replacement(self, snippet: Snippet, tree: Tree) -> str | None:
        if is_aggregate(tree):
            return quoted(self._called(snippet, tree))
        known = self._known_column(snippet, tree)
        if known is None and tree.kind == "column":
            alike = [name for name in self._compute if name.lower() == tree.value.lower()]
            if not alike:
                self._names.find(tree, snippet)
                raise self._not_grouped(snippet, tree)
            known = alike[0]
        if known is None or (tree.kind == "column" and known == tree.value):
            return None
        return quoted(known)

    def _called(self, snippet: Snippet, tree: Tree) -> str:
        """Return the column with the value of a call; it is added if there is none."""
        part = snippet.part(tree)
        rewritten = self._names.rewritten(part)
        for name, known in self._compute.items():
            if known == rewritten:
                return name
        name = self._free(tree.value)
        self._compute[name] = rewritten
        self._spans[f"compute/{name}"] = (part.start, part.end)
        return name

    def _check_grouped(self, snippet: Snippet, tree: Tree) -> None:
        """Refuse a column outside aggregates that is no key; raises InvalidSql."""
        if is_aggregate(tree):
            return
        if tree.kind == "column":
            column = self._names.find(tree, snippet)
            if column.reference not in self._grouping.by:
                raise self._not_grouped(snippet, tree)
        for operand in tree.operands:
            self._check_grouped(snippet, operand)

    def _reads_window(self, tree: Tree) -> bool:
        """Whether a bound of the window or a computed key is read outside aggregates."""
        if is_aggregate(tree):
            return False
        if tree.kind == "column":
            return tree.value.lower().rpartition(".")[2] in WINDOW_COLUMNS
        return any(map(self._reads_window, tree.operands)) or bool(self._grouping.computed)

    def _is_window_column(self, key: Snippet) -> bool:
        name = key.tree.value.lower().rpartition(".")[2]
        return key.tree.kind == "column" and name in WINDOW_COLUMNS

    def _free(self, name: str) -> str:
        """Return a name that no column of the input or the result has."""
        taken = {*self._relation.names, *self._grouping.computed, *self._compute, *WINDOW_COLUMNS}
        for item in self._items():
            if item.alias is not None and item.alias.value != name:
                taken.add(item.alias.value)
        found, number = name, 1
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        return found

    def _not_grouped(self, snippet: Snippet, tree: Tree) -> InvalidSql:
        return self._error(
            "not_grouped",
            f"`{tree.value}` is neither aggregated nor in GROUP BY; add it there or use an aggregate such as "
            f"first({tree.value})",
            snippet.start + tree.start,
            snippet.start + tree.end,
        )

    def _no_window(self) -> InvalidSql:
        time = min(self._relation.times, default="row_time")
        return self._error(
            "missing_window",
            "aggregates of a stream need a window; write for example "
            f"GROUP BY TUMBLE({time}, INTERVAL '1' SECOND)",
            self._select.start,
            self._select.end,
        )

    def _error(self, reason: str, detail: str, start: int, end: int) -> InvalidSql:
        return self._source.error(reason, detail, start, end)
