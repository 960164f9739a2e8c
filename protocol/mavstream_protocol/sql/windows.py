"""The window functions of SQL: TUMBLE and HOP, by time or by rows, and SESSION."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.quantities import format_duration
from mavstream_protocol.sql.cursor import Cursor, Name
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.tokens import NUMBER
from mavstream_protocol.sql.tree import QueryHints, WindowCall

ROW_TIME = "row_time"
"""The name of the time of rows where no column has it: windows and joins take it instead of a column."""
WINDOW_TIME = "window_time"
"""Another name of the time of rows that a window made."""
WINDOW_COLUMNS = ("window_start", "window_end")
_WINDOW: TypeAdapter[AggregateWindow] = TypeAdapter(AggregateWindow)

Extent = int | str
"""Rows, or a duration as plans write it."""


def at_window(cursor: Cursor) -> bool:
    """Whether a window function is called here."""
    if cursor.ahead(1).sign != "(" or cursor.token.kind != "word":
        return False
    if cursor.token.word == "cumulate":
        raise cursor.source.error(
            "unsupported_window",
            f"there is no window {cursor.token.value.upper()}; supported are {SUPPORTED}",
            cursor.token.start,
            cursor.token.end,
        )
    return cursor.token.word in WINDOW_FUNCTIONS


def read_window(cursor: Cursor, read_relation: Callable[[], None] | None = None) -> WindowCall:
    """Read `TUMBLE([relation,] [time,] size)`, `HOP(..., hop, size)` or `SESSION(..., gap)`."""
    start, function = cursor.token.start, cursor.take().word
    cursor.expect_sign("(")
    keys: tuple[Name, ...] | None = None
    if read_relation is not None:
        read_relation()
        if function == "session":
            keys = _keys(cursor)
        cursor.expect_sign(",")
    time = _time(cursor)
    extents = [_extent(cursor)]
    while cursor.accept_sign(","):
        extents.append(_extent(cursor))
    cursor.expect_sign(")")
    shown = WINDOW_FUNCTIONS[function]
    if len(extents) != len(shown):
        raise cursor.source.error(
            "wrong_arguments",
            f"{function.upper()} takes {' and '.join(shown)}, got {len(extents)} extents; write for example "
            f"{_EXAMPLES[function]}",
            start,
            cursor.last_end,
        )
    if len({type(extent) for extent in extents}) > 1:
        detail = "both extents of a window are intervals, or both are ROWS"
        raise cursor.source.error("invalid_window", detail, start, cursor.last_end)
    parts: dict[str, Any] = dict(zip(shown, extents, strict=True))
    if isinstance(parts.get("gap"), int):
        detail = "the gap of a session is an interval; write for example INTERVAL '1' MINUTE"
        raise cursor.source.error("invalid_window", detail, start, cursor.last_end)
    kind = "session" if "gap" in parts else "hopping" if "hop" in parts else "tumbling"
    window = _checked({"kind": kind, **parts}, cursor.source, start, cursor.last_end)
    return WindowCall(time, window, start, cursor.last_end, keys)


def with_hints(window: AggregateWindow, hints: QueryHints, source: SqlSource) -> AggregateWindow:
    """Return a window with the properties that only hints can give it."""
    given = {"begin": hints.begin, "until": hints.until, "partial": hints.partial or None}
    added = {key: value for key, value in given.items() if value is not None}
    if not added:
        return window
    data = window.model_dump(mode="json", exclude_defaults=True) | {"kind": window.kind}
    return _checked({**data, **added}, source, hints.start, hints.end)


WINDOW_FUNCTIONS = {"tumble": ("size",), "hop": ("hop", "size"), "session": ("gap",)}
"""The window functions with the extents that they take, in order."""
SUPPORTED = "TUMBLE, HOP and SESSION"
_EXAMPLES = {
    "tumble": "TUMBLE(readings, at, INTERVAL '1' SECOND)",
    "hop": "HOP(readings, at, INTERVAL '1' SECOND, INTERVAL '10' SECOND)",
    "session": "SESSION(readings, at, INTERVAL '1' MINUTE)",
}


def _checked(data: dict[str, Any], source: SqlSource, start: int, end: int) -> AggregateWindow:
    try:
        return _WINDOW.validate_python(data)
    except ValidationError as error:
        raise _invalid(error, source, start, end) from None


def _invalid(error: ValidationError, source: SqlSource, start: int, end: int) -> InvalidSql:
    first = causes(error.errors())[0]
    message = sentence(first, quoted(first, "it"))
    return source.error("invalid_window", f"the window is not valid: {message}", start, end)


def _keys(cursor: Cursor) -> tuple[Name, ...] | None:
    """Read `PARTITION BY room`, as Flink names the keys of sessions; it may be left out."""
    if not cursor.accept("partition", "by"):
        return None
    names = [cursor.name("a column")]
    # The name before the interval is the column of time.
    while cursor.ahead(1).names and cursor.ahead(2).sign == "," and cursor.ahead(3).word != "interval":
        cursor.take()
        names.append(cursor.name("a column"))
    return tuple(names)


def _time(cursor: Cursor) -> Name | None:
    """Read the column of time, also as `DESCRIPTOR(at)`; it may be left out."""
    if cursor.at_words("descriptor"):
        cursor.take()
        cursor.expect_sign("(")
        time = cursor.name("the name of a column of time")
        cursor.expect_sign(")")
    elif cursor.token.names and cursor.ahead(1).sign == ",":
        time = cursor.name("the name of a column of time")
    else:
        return None
    cursor.expect_sign(",")
    return time


def _extent(cursor: Cursor) -> Extent:
    """Read `INTERVAL '1' SECOND` or `ROWS 100`."""
    if cursor.accept("rows"):
        if cursor.token.kind != NUMBER or not cursor.token.value.isdecimal():
            raise cursor.misplaced("a whole number of rows")
        return int(cursor.take().value)
    start = cursor.token.start
    if not cursor.at_words("interval"):
        raise cursor.misplaced("INTERVAL '1' SECOND", "ROWS 100")
    snippet = cursor.expression()
    if snippet.tree.kind != "interval" or int(snippet.tree.value) < 0:
        raise cursor.source.error(
            "invalid_window", "expected an interval such as INTERVAL '1' SECOND", start, cursor.last_end
        )
    return format_duration(int(snippet.tree.value))
