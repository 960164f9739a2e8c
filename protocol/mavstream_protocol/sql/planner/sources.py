"""FROM: names of streams, tables and queries to relations, and the windows that cut them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.names import closest
from mavstream_protocol.sql.cursor import Name
from mavstream_protocol.sql.planner.builder import PlanBuilder
from mavstream_protocol.sql.planner.conditions import is_time
from mavstream_protocol.sql.planner.relations import Relation, all_columns
from mavstream_protocol.sql.tree import FromItem, NamedRelation, Query, QueryHints, WindowCall
from mavstream_protocol.sql.windows import ROW_TIME


class NamedQueries:
    """The queries that WITH names, from the outermost to the innermost."""

    def __init__(self, outer: NamedQueries | None = None) -> None:
        self._outer = outer
        self._relations: dict[str, Relation] = {}
        self.unread: dict[str, Name] = {}

    def add(self, name: Name, relation: Relation) -> None:
        """Add a query; it hides streams and outer queries of the same name."""
        self._relations[name.value.lower()] = relation
        self.unread[name.value.lower()] = name

    def get(self, name: str) -> Relation | None:
        """Return the relation of a name, or None."""
        found = self._relations.get(name.lower())
        if found is not None:
            self.unread.pop(name.lower(), None)
            return found
        return None if self._outer is None else self._outer.get(name)

    @property
    def names(self) -> list[str]:
        """All names that can be read."""
        return [*self._relations, *(self._outer.names if self._outer else ())]


class SourcePlanner:
    """Plans the items of FROM."""

    def __init__(
        self, builder: PlanBuilder, queries: NamedQueries, plan_query: Callable[[Query, str], Relation]
    ) -> None:
        self._builder = builder
        self._queries = queries
        self._plan_query = plan_query

    def relation(self, item: FromItem, hints: QueryHints) -> Relation:
        """Return the relation of an item, under its name; raises InvalidSql."""
        if isinstance(item.relation, NamedRelation):
            found, alias = self._named(item.relation, hints), item.relation.name.value
        else:
            found, alias = self._plan_query(item.relation.query, "query"), ""
        found = found.named(item.alias.value if item.alias else alias)
        return found if item.window is None else self._windowed(found, item.window)

    def _windowed(self, relation: Relation, call: WindowCall) -> Relation:
        if relation.table:
            raise self._builder.source.error(
                "invalid_window",
                "the rows of a stored table have no time; cut the stream",
                call.start,
                call.end,
            )
        check_time(self._builder, relation, call)
        return replace(relation, window=call.window, session_keys=call.keys)

    def _named(self, item: NamedRelation, hints: QueryHints) -> Relation:
        name = item.name
        known = self._queries.get(name.value)
        if known is not None:
            return self._output(known, item)
        if item.output is not None:
            raise self._error(f"`{name.value}` is no query with /*+ SPLIT(...) */ and has no outputs", item)
        catalog, span = self._builder.catalog, (name.start, name.end)
        stream = _find(name.value, catalog.streams)
        if stream is not None:
            statistics = hints.statistics.get("source")
            shape = catalog.streams[stream]
            of_query = shape.query is not None and not shape.derived
            origin = {"query" if of_query else "stream": stream}
            node = self._builder.add("source", stream, span, None, statistics, **origin)
            times = frozenset({shape.event_time} if shape.event_time else ())
            return Relation(node, all_columns(shape.schema.names), times)
        table = _find(name.value, catalog.tables)
        if table is None:
            raise self._unknown(item)
        node = self._builder.add("table", table, span, table=table)
        return Relation(node, all_columns(catalog.tables[table].names), table=True)

    def _output(self, relation: Relation, item: NamedRelation) -> Relation:
        """Return an output of a split, or a relation that has only one."""
        if not relation.outputs:
            if item.output is not None:
                raise self._error(f"`{item.name.value}` has no outputs; write its name alone", item)
            return relation
        listed = ", ".join(f"{item.name.value}.{output}" for output in relation.outputs)
        if item.output is None:
            raise self._error(f"`{item.name.value}` is split; choose one of {listed}", item)
        output = _find(item.output.value, dict.fromkeys(relation.outputs, None))
        if output is None:
            raise self._error(
                f"`{item.name.value}` has no output `{item.output.value}`; it has {listed}", item
            )
        return replace(relation, node=f"{relation.node}.{output}", outputs=())

    def _unknown(self, item: NamedRelation) -> InvalidSql:
        catalog = self._builder.catalog
        known = [*self._queries.names, *catalog.streams, *catalog.tables]
        close = closest(item.name.value, known, 2)
        advice = (
            f"did you mean {' or '.join(f'`{one}`' for one in close)}?"
            if close
            else f"known are {', '.join(known[:20]) or 'none'}"
        )
        return self._error(
            f"there is no stream, table or query `{item.name.value}`; {advice}", item, "unknown_stream"
        )

    def _error(self, detail: str, item: NamedRelation, reason: str = "unknown_output") -> InvalidSql:
        return self._builder.source.error(reason, detail, item.start, item.end)


def check_time(builder: PlanBuilder, relation: Relation, call: WindowCall) -> None:
    """Refuse a window by a column that is not the time of the rows; raises InvalidSql."""
    if call.time is None or is_time(relation, call.time.value):
        return
    times = " or ".join(f"`{name}`" for name in sorted(relation.times)) or f"`{ROW_TIME}`"
    raise builder.source.error(
        "invalid_window",
        f"windows go by the time of the rows, which is {times} here, got `{call.time.value}`; "
        "write it, or leave the column out",
        call.time.start,
        call.time.end,
    )


def _find(name: str, known: Mapping[str, object]) -> str | None:
    """Return the name as it is registered: an exact match, else the only one that differs in case."""
    if name in known:
        return name
    alike = [other for other in known if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
