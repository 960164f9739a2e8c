"""Hints of a query: `/*+ PARTIAL, BEGIN('2026-01-01'), HINT(select, selectivity = 0.1) */`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.plan import NODES, OPERATORS
from mavstream_protocol.sql.cursor import Cursor
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.tokens import NUMBER, Token
from mavstream_protocol.sql.tree import Item, QueryHints

_KNOWN = ("partial", "begin", "until", "scaled", "order", "split", "hint")
HINTED = tuple(op for op, node in zip(OPERATORS, NODES, strict=True) if "hints" in node.model_fields)
"""The operators that take statistics."""


def read_hints(source: SqlSource, token: Token | None) -> QueryHints:
    """Return what a hint says; raises InvalidSql."""
    if token is None:
        return QueryHints()
    cursor = Cursor(source, token.start + 3, token.end - 2)
    hints = QueryHints(start=token.start, end=token.end)
    while True:
        hints = _with_next(cursor, hints)
        if not cursor.accept_sign(","):
            break
    if not cursor.at_end:
        raise cursor.misplaced("`,`", "the end of the hint")
    return hints


def _with_next(cursor: Cursor, hints: QueryHints) -> QueryHints:
    word = cursor.one_of(*_KNOWN)
    changes: dict[str, Any]
    if word in ("partial", "scaled"):
        changes = {word: True}
        return replace(hints, **changes)
    cursor.expect_sign("(")
    if word in ("begin", "until"):
        changes = {word: _bound(cursor)}
    elif word == "order":
        cursor.expect("time")
        changes = {"ordered": True}
    elif word == "split":
        changes = {"split": _outputs(cursor)}
    else:
        operator, statistics = _statistics(cursor)
        changes = {"statistics": {**hints.statistics, operator: statistics}}
    cursor.expect_sign(")")
    return replace(hints, **changes)


def _bound(cursor: Cursor) -> str | int:
    """Read an instant or the number of a row."""
    if cursor.token.kind == NUMBER and cursor.token.value.isdecimal():
        return int(cursor.take().value)
    return cursor.text("an instant such as '2026-01-01T00:00:00Z' or the number of a row").value


def _outputs(cursor: Cursor) -> tuple[Item, ...]:
    """Read conditions with the names of the outputs that take the rows."""
    items: list[Item] = []
    while not items or cursor.accept_sign(","):
        condition = cursor.expression("a condition")
        cursor.expect("as")
        items.append(Item(condition, cursor.name("the name of an output")))
    return tuple(items)


def _statistics(cursor: Cursor) -> tuple[str, Hints]:
    """Read `select, selectivity = 0.1, cost = '250ns'`."""
    start = cursor.token.start
    operator = cursor.one_of(*HINTED)
    given: dict[str, Any] = {}
    while cursor.accept_sign(","):
        key = cursor.one_of(*Hints.model_fields)
        cursor.expect_sign("=")
        is_number = cursor.token.kind == NUMBER
        given[key] = float(cursor.take().value) if is_number else cursor.text("a number or a text").value
    try:
        return operator, Hints.model_validate(given)
    except ValidationError as error:
        first = causes(error.errors())[0]
        message = sentence(first, quoted(first, "the hint"))
        raise cursor.source.error("invalid_hint", message, start, cursor.last_end) from None
