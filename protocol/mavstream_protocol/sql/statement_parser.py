"""The parser of statements: SELECT, CREATE, INSERT, SHOW, DESCRIBE, DROP, PAUSE, RESUME, SET and EXPLAIN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.expressions.tokens import TYPE_NAMES
from mavstream_protocol.names import closest
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.quantities import format_duration
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.sql.cursor import Cursor, Name
from mavstream_protocol.sql.inserts import read_insert
from mavstream_protocol.sql.options import (
    CLASS_OPTIONS,
    QUERY_OPTIONS,
    STREAM_OPTIONS,
    checked,
    read_options,
)
from mavstream_protocol.sql.planner.builder import Catalog
from mavstream_protocol.sql.planner.queries import read_query
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.statements import (
    AddColumn,
    CreateClass,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    ObjectKind,
    PauseQuery,
    ResumeQuery,
    SelectRows,
    SetScheduler,
    Show,
    Statement,
)
from mavstream_protocol.sql.tokens import NUMBER, tokenize
from mavstream_protocol.streams import FieldSpec, StreamSpec
from mavstream_protocol.tables import TableFields
from mavstream_protocol.wire.stream_change import StreamChange

# What users of other systems write, and what says the same here.
_FOREIGN_KINDS = {
    "view": "a view that is maintained is a query here; write CREATE QUERY name AS SELECT",
    "materialized": "a view that is maintained is a query here; write CREATE QUERY name AS SELECT",
    "source": "a source is a stream here; write CREATE STREAM name (column type, ...)",
    "sink": "results are subscribed; write CREATE QUERY name AS SELECT, and read its results",
    "index": "tables are indexed by themselves, for the joins that read them; leave it out",
}
_FOREIGN_STATEMENTS = {
    "update": "rows of a stream are never changed; append new ones with INSERT INTO",
    "delete": "rows of a stream are never changed; WITH (retention = '1h') removes old ones",
    "truncate": "rows of a stream are never changed; WITH (retention = '1h') removes old ones",
    "begin": "there are no transactions; leave it out, each statement takes effect by itself",
    "commit": "there are no transactions; leave it out, each statement takes effect by itself",
    "stop": "write PAUSE QUERY name, or DROP QUERY name",
    "desc": "write DESCRIBE name",
    "use": "there is one namespace; leave it out",
}
_KEPT = "a stream keeps its columns, which stored rows and queries have; columns are only added"
_FOREIGN_CHANGES = {
    "drop": f"{_KEPT}; leave it out of SELECT",
    "rename": f"{_KEPT}; give it another name with AS in SELECT",
    "alter": f"{_KEPT}; convert it with CAST in SELECT",
    "modify": f"{_KEPT}; convert it with CAST in SELECT",
}
_PLURALS = {"streams": "stream", "tables": "table", "queries": "query", "classes": "class"}


def parse_select(text: str, catalog: Catalog) -> Plan:
    """Return the plan of a query; raises InvalidSql."""
    cursor = Cursor(SqlSource(text))
    if not cursor.at_words("with") and cursor.token.sign != "(" and not cursor.at_words("select"):
        raise cursor.misplaced("SELECT", "WITH")
    plan = read_query(cursor, catalog)
    cursor.expect_end()
    return plan


def parse_statement(text: str, catalog: Catalog) -> Statement:
    """Return a single statement, which may end with a semicolon; raises InvalidSql."""
    cursor = Cursor(SqlSource(text))
    statement = _StatementParser(cursor, catalog).statement()
    cursor.expect_end()
    return statement


def statement_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the statements of a script start and end, without semicolons; raises InvalidSql."""
    start = None
    for token in tokenize(SqlSource(text)):
        if start is not None and (token.sign == ";" or token.kind == "end"):
            yield start, start + len(text[start : token.start].rstrip())
            start = None
        elif start is None and token.sign != ";" and token.kind != "end":
            start = token.start


def split_statements(text: str) -> Iterator[str]:
    """Yield the statements of a script, which semicolons separate; raises InvalidSql.

    Each has as many lines in front as in the script, so that errors name the right ones.
    """
    for start, end in statement_spans(text):
        column = start - (text.rfind("\n", 0, start) + 1)
        yield "\n" * text.count("\n", 0, start) + " " * column + text[start:end]


class _StatementParser:
    """Reads one statement."""

    def __init__(self, cursor: Cursor, catalog: Catalog) -> None:
        self._cursor = cursor
        self._catalog = catalog
        self._readers: dict[str, Callable[[], Statement]] = {
            "select": lambda: SelectRows(self._query()),
            "with": lambda: SelectRows(self._query()),
            "explain": self._explain,
            "create": self._create,
            "alter": self._alter,
            "insert": lambda: read_insert(cursor, catalog),
            "show": self._show,
            "describe": self._describe,
            "drop": self._drop,
            "pause": self._pause,
            "resume": self._resume,
            "set": self._set,
        }

    def statement(self) -> Statement:
        """Read the statement; raises InvalidSql."""
        cursor = self._cursor
        if cursor.token.sign == "(":
            return SelectRows(self._query())
        reader = self._readers.get(cursor.token.word)
        if reader is None:
            self._refuse_foreign(_FOREIGN_STATEMENTS)
            raise cursor.misplaced(*(word.upper() for word in self._readers))
        return reader()

    def _query(self) -> Plan:
        return read_query(self._cursor, self._catalog)

    def _explain(self) -> Explain:
        self._cursor.take()
        if not any(map(self._cursor.at_words, ("select", "with"))):
            token = self._cursor.token
            if token.names or token.word == "query":
                detail = (
                    f"expected SELECT, got `{token.value}`; EXPLAIN takes a query that is not registered "
                    "yet, and `mavstream query plan NAME` shows the plan of one that is"
                )
                raise self._cursor.source.error("syntax_error", detail, token.start, token.end)
            raise self._cursor.misplaced("SELECT")
        return Explain(self._query())

    def _create(self) -> Statement:
        cursor = self._cursor
        start = cursor.take().start
        replace = cursor.accept("or", "replace")
        self._refuse_foreign(_FOREIGN_KINDS)
        kind = cursor.one_of(
            *(("query", "class", "table", "stream") if replace else ("stream", "class", "query", "table"))
        )
        match kind:
            case "stream":
                name = cursor.name("the name of a stream")
                if cursor.token.sign != "(":
                    return self._create_derived(start, name, replace)
                if replace:
                    detail = (
                        "a stream that is fed cannot be replaced, since producers and queries use it: add "
                        f"columns with ALTER STREAM {name.value} ADD COLUMN, or drop it first; "
                        f"CREATE OR REPLACE STREAM {name.value} AS SELECT ... replaces a derived stream"
                    )
                    token = cursor.token
                    raise cursor.source.error("unsupported_syntax", detail, token.start, token.end)
                return self._create_stream(start, name)
            case "class":
                return self._create_class(start, replace)
            case "table":
                return self._create_table(start, replace)
        return self._create_query(start, replace)

    def _refuse_foreign(self, foreign: Mapping[str, str]) -> None:
        """Raise InvalidSql for a word of other systems, with what to write here."""
        token = self._cursor.token
        if token.word in foreign:
            raise self._cursor.source.error("unsupported_syntax", foreign[token.word], token.start, token.end)

    def _create_derived(self, start: int, name: Name, replace: bool) -> CreateQuery:
        """Read `CREATE [OR REPLACE] STREAM name [WITH (...)] AS SELECT ...`: its results are a stream."""
        cursor = self._cursor
        if not any(map(cursor.at_words, ("with", "as"))):
            raise cursor.misplaced("(", "AS")
        options = read_options(cursor, QUERY_OPTIONS)
        cursor.expect("as")
        data: dict[str, Any] = {"name": name.value, "plan": self._query(), "derive": True}
        return CreateQuery(checked(QuerySpec, data, options, cursor, start), replace)

    def _create_stream(self, start: int, name: Name) -> CreateStream:
        cursor = self._cursor
        cursor.expect_sign("(")
        data: dict[str, Any] = {"name": name.value, "fields": []}
        while True:
            if cursor.at_words("watermark", "for"):
                data |= self._watermark()
            else:
                data["fields"].append(self._column())
            if not cursor.accept_sign(","):
                break
        cursor.expect_sign(")")
        options = read_options(cursor, STREAM_OPTIONS)
        return CreateStream(checked(StreamSpec, data, options, cursor, start))

    def _column(self) -> dict[str, Any]:
        """Read `name type [NULL | NOT NULL]`."""
        cursor = self._cursor
        name = cursor.name("the name of a column")
        token = cursor.token
        if token.word not in TYPE_NAMES:
            close = closest(token.word, list(TYPE_NAMES), 1)
            known = f"did you mean {close[0]}?" if close else f"known are {', '.join(TYPE_NAMES)}"
            detail = f"expected the type of the column `{name.value}`; {known}"
            raise cursor.source.error("unknown_type", detail, token.start, token.end)
        cursor.take()
        nullable = cursor.accept("null")
        if not nullable and cursor.accept("not"):
            cursor.expect("null")
        return {"name": name.value, "type": TYPE_NAMES[token.word], "nullable": nullable}

    def _watermark(self) -> dict[str, str]:
        """Read `WATERMARK FOR at AS at - INTERVAL '2' SECOND`."""
        cursor = self._cursor
        cursor.expect("watermark", "for")
        name = cursor.name("the name of a column")
        cursor.expect("as")
        snippet = cursor.expression("an expression such as at - INTERVAL '2' SECOND")
        tree, lateness = snippet.tree, 0
        if tree.kind == "-" and tree.operands[1].kind == "interval":
            tree, lateness = tree.operands[0], int(tree.operands[1].value)
        if tree.kind != "column" or tree.value.lower() != name.value.lower() or lateness < 0:
            detail = f"a watermark is the column less an interval; write {name.value} - INTERVAL '2' SECOND"
            raise cursor.source.error("invalid_watermark", detail, snippet.start, snippet.end)
        return {"event_time": name.value, "lateness": format_duration(lateness)}

    def _create_class(self, start: int, replace: bool) -> CreateClass:
        cursor = self._cursor
        data: dict[str, Any] = {"name": cursor.name("the name of a class").value}
        if cursor.accept("priority"):
            token = cursor.token
            if token.kind != NUMBER or not token.value.isdecimal() or not 1 <= int(token.value[:9]) <= 1000:
                raise cursor.misplaced("a whole number from 1 to 1000")
            data["priority"] = int(cursor.take().value)
        options = read_options(cursor, CLASS_OPTIONS)
        return CreateClass(checked(QueryClass, data, options, cursor, start), replace)

    def _create_table(self, start: int, replace: bool) -> CreateTable:
        """Read `CREATE TABLE rooms [(room string, floor int NULL)] AS FROM 'rooms.csv'`."""
        cursor = self._cursor
        name = cursor.name("the name of a table")
        fields: list[dict[str, Any]] = []
        if cursor.accept_sign("("):
            fields.append(self._column())
            while cursor.accept_sign(","):
                fields.append(self._column())
            cursor.expect_sign(")")
        if not cursor.accept("as"):
            raise cursor.misplaced("AS FROM 'file.csv'")
        if any(map(cursor.at_words, ("select", "with", "values"))):
            raise cursor.source.error(
                "unsupported_syntax",
                f"a stored table is made from a file, not a query; write {name.value} AS FROM 'file.csv'",
                cursor.token.start,
                cursor.token.end,
            )
        if not cursor.accept("from"):
            raise cursor.misplaced("FROM 'file.csv'")
        file = cursor.text("a file in quotes, such as 'rooms.csv'").value
        given = checked(TableFields, {"fields": fields}, (), cursor, start).fields if fields else None
        return CreateTable(name.value, given, file, replace)

    def _alter(self) -> AddColumn:
        """Read `ALTER STREAM name ADD COLUMN column type NULL`."""
        cursor = self._cursor
        start = cursor.take().start
        cursor.expect("stream")
        name = cursor.name("the name of a stream")
        self._refuse_foreign(_FOREIGN_CHANGES)
        cursor.expect("add", "column")
        column = self._column()
        field = checked(FieldSpec, column, (), cursor, start)
        if not field.nullable:
            raise cursor.source.error(
                "column_not_null",
                f"rows that are stored already have no `{field.name}`; write NULL behind its type",
                start,
                cursor.last_end,
            )
        checked(StreamChange, {"add_fields": [column]}, (), cursor, start)
        return AddColumn(name.value, field)

    def _create_query(self, start: int, replace: bool) -> CreateQuery:
        cursor = self._cursor
        name = cursor.name("the name of a query")
        options = read_options(cursor, QUERY_OPTIONS)
        cursor.expect("as")
        data: dict[str, Any] = {"name": name.value, "plan": self._query()}
        return CreateQuery(checked(QuerySpec, data, options, cursor, start), replace)

    def _show(self) -> Show:
        self._cursor.take()
        return Show(ObjectKind(_PLURALS[self._cursor.one_of(*_PLURALS)]))

    def _describe(self) -> Describe:
        self._cursor.take()
        return Describe(self._cursor.name("the name of a stream, table or query").value)

    def _drop(self) -> Drop:
        self._cursor.take()
        kind = ObjectKind(self._cursor.one_of(*ObjectKind))
        return Drop(kind, self._cursor.name(f"the name of a {kind}").value)

    def _pause(self) -> PauseQuery:
        return PauseQuery(self._named_query())

    def _resume(self) -> ResumeQuery:
        return ResumeQuery(self._named_query())

    def _named_query(self) -> str:
        self._cursor.take()
        self._cursor.expect("query")
        return self._cursor.name("the name of a query").value

    def _set(self) -> SetScheduler:
        self._cursor.take()
        self._cursor.expect("scheduler")
        self._cursor.accept_sign("=")
        return SetScheduler(self._cursor.name("the name of a policy").value)
