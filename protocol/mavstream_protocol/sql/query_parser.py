"""The parser of queries: SELECT, FROM, joins, windows, GROUP BY, set operations and WITH."""

from __future__ import annotations

from typing import Literal

from mavstream_protocol.sql.cursor import Cursor, Name, Snippet
from mavstream_protocol.sql.hints import read_hints
from mavstream_protocol.sql.source import MAX_DEPTH
from mavstream_protocol.sql.tree import (
    FromItem,
    Item,
    Join,
    NamedRelation,
    Query,
    Select,
    SetOperation,
    Star,
    Subquery,
    WindowCall,
)
from mavstream_protocol.sql.windows import SUPPORTED, at_window, read_window

_UNSUPPORTED_TAILS = {
    "order": "rows of a continuous query are given as they are found; leave ORDER BY out",
    "limit": "a continuous query does not end; leave LIMIT out, or stop reading its results",
    "offset": "a continuous query does not end; leave OFFSET out",
    "intersect": "there is no INTERSECT; join in a common window",
    "window": "there are no window functions over rows; use TUMBLE, HOP or SESSION with GROUP BY",
}
_UNSUPPORTED_JOINS = {
    "right": "there is no RIGHT JOIN; swap the two sides and write LEFT JOIN",
    "full": "there is no FULL JOIN; streams are joined with JOIN, stored tables also with LEFT JOIN",
    "cross": "there is no CROSS JOIN; write JOIN ... ON with a condition on the time of both sides",
    "natural": "there is no NATURAL JOIN; write USING (column, ...)",
    "semi": "there is no SEMI JOIN; write JOIN with DISTINCT in a window",
}


class QueryParser:
    """Reads queries from a cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._depth = 0

    def query(self) -> Query:
        """Read a query with everything in it; raises InvalidSql."""
        cursor = self._cursor
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise cursor.source.too_deep(cursor.token.start, cursor.token.end)
        named: list[tuple[Name, Query]] = []
        if cursor.accept("with"):
            if cursor.at_words("recursive"):
                raise self._unsupported("recursive queries are not supported; leave RECURSIVE out")
            while not named or cursor.accept_sign(","):
                named.append(self._named())
        query = self._set_operation()
        self._check_tail()
        self._depth -= 1
        return Query((*named, *query.named), query.body)

    def _named(self) -> tuple[Name, Query]:
        cursor = self._cursor
        name = cursor.name("the name of a query")
        cursor.expect("as")
        cursor.expect_sign("(")
        query = self.query()
        cursor.expect_sign(")")
        return name, query

    def _check_tail(self) -> None:
        word = self._cursor.token.word
        if word in _UNSUPPORTED_TAILS:
            raise self._unsupported(_UNSUPPORTED_TAILS[word])

    def _unsupported(self, detail: str) -> Exception:
        token = self._cursor.token
        return self._cursor.source.error("unsupported_syntax", detail, token.start, token.end)

    def _set_operation(self) -> Query:
        """Read SELECT ... UNION ALL SELECT ...; operations of different kinds need parentheses."""
        cursor, start = self._cursor, self._cursor.token.start
        first = self._operand()
        kind: Literal["union", "except"]
        if cursor.accept("union"):
            kind, by_name = "union", self._all_by_name()
        elif cursor.accept("except"):
            if cursor.at_words("all"):
                raise self._unsupported("EXCEPT ALL is written as LEFT ANTI JOIN; EXCEPT gives distinct rows")
            kind, by_name = "except", False
        else:
            return first
        hints = read_hints(cursor.source, cursor.hint())
        inputs = [first, self._operand()]
        while kind == "union" and cursor.accept("union"):
            if self._all_by_name() != by_name:
                raise self._unsupported("mix UNION ALL and UNION ALL BY NAME with parentheses only")
            inputs.append(self._operand())
        if cursor.at_words("union") or cursor.at_words("except"):
            raise self._unsupported("put parentheses around one of the set operations")
        return Query((), SetOperation(kind, by_name, tuple(inputs), hints, start, cursor.last_end))

    def _all_by_name(self) -> bool:
        if not self._cursor.at_words("all"):
            raise self._unsupported(
                "UNION alone would compare all rows; write UNION ALL, or DISTINCT in a window"
            )
        self._cursor.take()
        return self._cursor.accept("by", "name")

    def _operand(self) -> Query:
        """Read a SELECT, or a query in parentheses."""
        if not self._cursor.accept_sign("("):
            return Query((), self._select())
        query = self.query()
        self._cursor.expect_sign(")")
        return query

    def _select(self) -> Select:
        cursor, start = self._cursor, self._cursor.token.start
        cursor.expect("select")
        hints = read_hints(cursor.source, cursor.hint())
        distinct = cursor.accept("distinct")
        items = [self._item()]
        while cursor.accept_sign(","):
            items.append(self._item())
        cursor.expect("from")
        source = self._from_item()
        joins: list[Join] = []
        while (join := self._join()) is not None:
            joins.append(join)
        where = cursor.expression("a condition") if cursor.accept("where") else None
        keys: list[Snippet | WindowCall] = []
        if cursor.accept("group"):
            cursor.expect("by")
            while not keys or cursor.accept_sign(","):
                keys.append(read_window(cursor) if at_window(cursor) else cursor.expression("a column"))
        having = cursor.expression("a condition") if cursor.accept("having") else None
        return Select(
            tuple(items),
            distinct,
            source,
            tuple(joins),
            where,
            tuple(keys),
            having,
            hints,
            start,
            cursor.last_end,
        )

    def _item(self) -> Star | Item:
        cursor, start = self._cursor, self._cursor.token.start
        if cursor.accept_sign("*"):
            return Star(None, start, cursor.last_end)
        if cursor.token.names and cursor.ahead(1).sign == "." and cursor.ahead(2).sign == "*":
            qualifier = cursor.name("a name")
            cursor.take()
            cursor.take()
            return Star(qualifier, start, cursor.last_end)
        if cursor.at_words("from"):
            raise cursor.misplaced("columns to select", "`*`")
        expression = cursor.expression("a column or an expression")
        if cursor.token.word in ("over", "filter") and cursor.ahead(1).sign == "(":
            raise self._unsupported(_UNSUPPORTED_TAILS["window"])
        return Item(expression, self._alias("a name of the column"))

    def _alias(self, what: str) -> Name | None:
        """Read `AS name`, or a name alone."""
        cursor = self._cursor
        if cursor.accept("as") or cursor.token.names:
            return cursor.name(what)
        return None

    def _join(self) -> Join | None:
        cursor, start = self._cursor, self._cursor.token.start
        kind: Literal["inner", "left", "anti"] = "inner"
        if cursor.token.sign == ",":
            raise self._unsupported("join with JOIN ... ON instead of a comma")
        if cursor.token.word in _UNSUPPORTED_JOINS:
            raise self._unsupported(_UNSUPPORTED_JOINS[cursor.token.word])
        if cursor.accept("left", "anti") or cursor.accept("anti"):
            kind = "anti"
        elif cursor.accept("left", "outer") or cursor.accept("left"):
            kind = "left"
            if cursor.at_words("semi"):
                raise self._unsupported(_UNSUPPORTED_JOINS["semi"])
        elif not cursor.accept("inner") and not cursor.at_words("join"):
            return None
        cursor.expect("join")
        right = self._from_item()
        if kind == "anti":
            return Join(kind, right, None, (), self._whole_rows(), start, cursor.last_end)
        on, using = self._condition()
        return Join(kind, right, on, using, (), start, cursor.last_end)

    def _whole_rows(self) -> tuple[Name, ...]:
        """Read `ON l IS NOT DISTINCT FROM r`."""
        cursor = self._cursor
        cursor.expect("on")
        left = cursor.name("the name of the left side, as in ON l IS NOT DISTINCT FROM r")
        if not cursor.accept("is", "not", "distinct", "from"):
            raise cursor.misplaced("IS NOT DISTINCT FROM, as in ON l IS NOT DISTINCT FROM r")
        return left, cursor.name("the name of the right side")

    def _condition(self) -> tuple[Snippet | None, tuple[Name, ...]]:
        cursor = self._cursor
        if cursor.accept("using"):
            cursor.expect_sign("(")
            names = [cursor.name("the name of a column")]
            while cursor.accept_sign(","):
                names.append(cursor.name("the name of a column"))
            cursor.expect_sign(")")
            return None, tuple(names)
        if not cursor.accept("on"):
            raise cursor.misplaced("ON", "USING")
        return cursor.expression("a condition"), ()

    def _from_item(self) -> FromItem:
        """Read a relation: a name, a query in parentheses, a window function or TABLE(TUMBLE(...))."""
        cursor, start = self._cursor, self._cursor.token.start
        wrapped = cursor.at_words("table") and cursor.ahead(1).sign == "("
        if wrapped:
            cursor.take()
            cursor.take()
        window: WindowCall | None = None
        if at_window(cursor):
            found: list[NamedRelation | Subquery] = []
            window = read_window(cursor, lambda: found.append(self._relation()))
            relation = found[0]
        else:
            relation = self._relation()
        if wrapped:
            cursor.expect_sign(")")
        return FromItem(relation, window, self._alias("a name"), start, cursor.last_end)

    def _relation(self) -> NamedRelation | Subquery:
        cursor, start = self._cursor, self._cursor.token.start
        if cursor.at_words("table") and cursor.ahead(1).names:
            cursor.take()  # TABLE readings, as Flink writes it
        if cursor.accept_sign("("):
            query = self.query()
            cursor.expect_sign(")")
            return Subquery(query, start, cursor.last_end)
        name = cursor.name("the name of a stream")
        if cursor.token.sign == "(":
            raise cursor.source.error(
                "unknown_function",
                f"there is no table function `{name.value}`; supported are {SUPPORTED}",
                name.start,
                name.end,
            )
        output = None
        if cursor.accept_sign("."):
            # The output `else` is a word of SQL, but nothing else can stand behind the point.
            token = cursor.take()
            output = Name(token.value, token.start, token.end)
        return NamedRelation(name, output)
