"""Texts of typed expressions: writes rewritten expressions as SQL, the form that plans use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.instants import format_instant
from mavstream_protocol.schema import Field, FieldType

_INFIX = frozenset(("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "||"))
_NULL, _NOT_NULL = "IS NULL", "IS NOT NULL"
_PLAIN = re.compile(r"(?:[lr]\.)?[A-Za-z_][A-Za-z0-9_]*")


def text_of(expression: Expression, columns: Mapping[str, Field]) -> str | None:
    """Return SQL text that parses to exactly this expression over these columns, or None if there is none.

    The text is parsed and compared, so that a rewritten plan never differs from what was intended. Column
    names are quoted only where necessary.
    """
    try:
        for quoted in (False, True):
            text = _written(expression, quoted)
            if _reads_as(text, tuple(columns.items())) == expression:
                return text
    except ValueError:  # a constant that has no textual form
        pass
    return None


@lru_cache(maxsize=4096)
def _reads_as(text: str, columns: tuple[tuple[str, Field], ...]) -> Expression | None:
    """Parse a text, with a cache: a search writes the same expressions many times."""
    try:
        return parse_scalar(text, dict(columns))
    except ExpressionError:
        return None


def _written(expression: Expression, quoted: bool) -> str:
    match expression:
        case Literal():
            return _literal(expression)
        case ColumnRef():
            return _column(expression.name, quoted)
    arguments = [_written(argument, quoted) for argument in expression.arguments]
    # Parentheses keep nested conjunctions apart; single names and constants need none.
    closed = [
        text if isinstance(argument, ColumnRef | Literal) and not text.startswith("-") else f"({text})"
        for argument, text in zip(expression.arguments, arguments, strict=True)
    ]
    return _call(expression, arguments, closed)


def _call(call: Call, bare: list[str], closed: list[str]) -> str:
    match call.function:
        case "and" | "or":
            return f" {call.function.upper()} ".join(closed)
        case "not":
            return bare[0][: -len(_NULL)] + _NOT_NULL if _asks_for_null(call) else f"NOT {closed[0]}"
        case "negate":
            return f"-({bare[0]})"
        case "is_null" | "is_true" | "is_false":
            return f"{closed[0]} {call.function.replace('_', ' ').upper()}"
        case "between":
            return f"{closed[0]} BETWEEN {closed[1]} AND {closed[2]}"
        case "in":
            return f"{closed[0]} IN ({', '.join(bare[1:])})"
        case "like":
            escape = f" ESCAPE {bare[2]}" if len(bare) > 2 else ""
            return f"{closed[0]} LIKE {closed[1]}{escape}"
        case "case":
            return _case("CASE", bare)
        case "switch":
            return _case(f"CASE {closed[0]}", bare[1:])
        case "cast" | "try_cast":
            return f"{call.function.upper()}({bare[0]} AS {call.type})"
        case function if function in _INFIX:
            return f"{closed[0]} {function} {closed[1]}"
    return f"{call.function}({', '.join(bare)})"


def _asks_for_null(call: Call) -> bool:
    argument = call.arguments[0]
    return isinstance(argument, Call) and argument.function == "is_null"


def _case(head: str, parts: list[str]) -> str:
    branches = "".join(
        f" WHEN {when} THEN {then}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True)
    )
    return f"{head}{branches} ELSE {parts[-1]} END"


def _column(name: str, quoted: bool) -> str:
    if not quoted and _PLAIN.fullmatch(name):
        return name
    side, dot, column = name.rpartition(".")
    return f'{side}{dot}"{column}"'


def _literal(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "NULL"
    if literal.type is FieldType.TIMESTAMP:
        assert isinstance(value, int)
        return f"TIMESTAMP '{format_instant(value).rstrip('Z').replace('T', ' ')}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return repr(value)
