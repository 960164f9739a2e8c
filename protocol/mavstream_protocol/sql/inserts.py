"""INSERT INTO: rows of constants for a stream."""

from __future__ import annotations

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.binder import Binder, Columns
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.expressions.typed import Literal
from mavstream_protocol.instants import format_instant
from mavstream_protocol.names import closest
from mavstream_protocol.schema import FieldType
from mavstream_protocol.sql.cursor import Cursor, Name, Snippet
from mavstream_protocol.sql.planner.builder import Catalog
from mavstream_protocol.sql.statements import InsertRows, Value


def read_insert(cursor: Cursor, catalog: Catalog) -> InsertRows:
    """Read `INSERT INTO stream [(column, ...)] VALUES (...), ...`; raises InvalidSql."""
    cursor.expect("insert", "into")
    stream = cursor.name("the name of a stream")
    shape = catalog.streams.get(stream.value)
    if shape is None or shape.query is not None:
        detail = _not_fed(stream.value, catalog)
        raise cursor.source.error("unknown_stream", detail, stream.start, stream.end)
    columns = (
        tuple(_column(cursor, name, shape.schema.names) for name in _names(cursor)) or shape.schema.names
    )
    cursor.expect("values")
    rows = [_row(cursor, columns)]
    while cursor.accept_sign(","):
        rows.append(_row(cursor, columns))
    return InsertRows(stream.value, columns, tuple(rows))


def _not_fed(name: str, catalog: Catalog) -> str:
    """Say why no rows can be inserted under a name, and what can be done."""
    if name in catalog.streams:
        return (
            f"`{name}` is a query, whose rows are its results; insert into the streams that it reads, or "
            "create a stream"
        )
    if name in catalog.tables:
        return (
            f"`{name}` is a stored table; store its next version with CREATE OR REPLACE TABLE {name} AS FROM"
        )
    fed = [one for one, shape in catalog.streams.items() if shape.query is None]
    close = closest(name, fed, 1)
    known = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(fed) or 'none'}"
    return f"there is no stream `{name}`; {known}"


def _names(cursor: Cursor) -> list[Name]:
    if not cursor.accept_sign("("):
        return []
    names = [cursor.name("the name of a column")]
    while cursor.accept_sign(","):
        names.append(cursor.name("the name of a column"))
    cursor.expect_sign(")")
    return names


def _column(cursor: Cursor, name: Name, known: tuple[str, ...]) -> str:
    alike = [column for column in known if column.lower() == name.value.lower()]
    if alike:
        return alike[0]
    close = closest(name.value, known, 1)
    advice = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
    detail = f"there is no column `{name.value}`; {advice}"
    raise cursor.source.error("unknown_field", detail, name.start, name.end)


def _row(cursor: Cursor, columns: tuple[str, ...]) -> tuple[Value, ...]:
    start = cursor.token.start
    cursor.expect_sign("(")
    values = [_value(cursor)]
    while cursor.accept_sign(","):
        values.append(_value(cursor))
    cursor.expect_sign(")")
    if len(values) != len(columns):
        detail = f"the row has {len(values)} values for {len(columns)} columns ({', '.join(columns)}); "
        detail += "give one for each, or name the columns behind the stream"
        raise cursor.source.error("wrong_row", detail, start, cursor.last_end)
    return tuple(values)


def _value(cursor: Cursor) -> Value:
    """Read a constant: a number, a text, TRUE, FALSE, NULL or TIMESTAMP '...'."""
    snippet = cursor.expression("a value")
    try:
        constant = _bound(snippet, snippet.tree)
    except ExpressionError as error:
        raise cursor.source.error_within(error.code, error.detail, snippet.start, snippet.end) from None
    if isinstance(constant, Literal):
        if constant.type is FieldType.TIMESTAMP and isinstance(constant.value, int):
            return format_instant(constant.value)
        return constant.value
    detail = f"`{snippet.text}` is not a constant"
    if snippet.text.startswith('"'):
        detail += f"; use single quotes for text: '{snippet.tree.value}'"
    raise cursor.source.error("invalid_literal", detail, snippet.start, snippet.end)


def _bound(snippet: Snippet, tree: Tree) -> object:
    return None if tree.kind == "column" else Binder(Columns({})).bind(tree, snippet.text)
