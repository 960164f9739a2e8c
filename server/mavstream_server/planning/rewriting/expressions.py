"""Helpers for expressions in rewritten plans: conjuncts, size, substitution, and whether they can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from mavstream_protocol.expressions.coercion import BOOL, cast
from mavstream_protocol.expressions.functions import OPERATORS
from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal, parts, references
from mavstream_protocol.schema import FieldType

MOST_PARTS = 1000
"""The most parts of an expression after substitution; larger ones would exceed the limit for texts."""

# Functions that give a value or null in every row. All others are treated as able to fail, so that new
# functions are not moved until they are listed here. No function is volatile: the language has neither a
# clock nor random numbers, and a function that used them would not belong here, either.
NEVER_FAIL = frozenset(
    (
        *("and", "or", "not", "is_null", "is_true", "is_false"),
        *("=", "<>", "<", "<=", ">", ">=", "between", "in"),
        *("case", "switch", "coalesce", "nullif", "least", "greatest"),
        *("floor", "ceil", "||", "concat", "lower", "upper", "length", "contains", "starts_with"),
        *("year", "month", "day", "hour", "minute", "second", "dayofweek", "epoch", "date_trunc", "try_cast"),
    )
)


def can_fail(expression: Expression) -> bool:
    """Whether evaluating the expression may fail for some rows: overflow, domain error, failed cast."""
    if not isinstance(expression, Call):
        return False
    return _call_can_fail(expression) or any(can_fail(argument) for argument in expression.arguments)


def _call_can_fail(call: Call) -> bool:
    match call.function:
        case "cast":
            # The result of casting a non-nullable value is nullable only if the conversion can fail.
            return cast(ColumnRef("", call.arguments[0].type, False), call.type).nullable
        case "like":
            return len(call.arguments) > 2  # an invalid pattern may end with its escape character
        case "%" | "//":
            return call.type is not FieldType.INT or not _harmless_divisor(call.arguments[1])
    return call.function not in NEVER_FAIL


def _harmless_divisor(divisor: Expression) -> bool:
    return isinstance(divisor, Literal) and divisor.value not in (None, 0, -1)


def distinguishes_zeros(expression: Expression) -> bool:
    """Whether an expression may differ for 0.0 and -0.0, which are equal: their texts differ."""
    if not isinstance(expression, Call):
        return False
    shown = expression.type is FieldType.STRING
    shown = shown and any(argument.type is FieldType.FLOAT for argument in expression.arguments)
    return shown or any(map(distinguishes_zeros, expression.arguments))


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    """Return the parts of a predicate that must all be true, in order; nested conjunctions are flattened."""
    found, waiting = [], [predicate]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Call) and part.function == "and":
            waiting += part.arguments[::-1]
        else:
            found.append(part)
    return tuple(found)


def conjunction(parts: Iterable[Expression]) -> Expression:
    """Return the conjunction of one or more parts."""
    parts = tuple(parts)
    if len(parts) == 1:
        return parts[0]
    assert all(part.type is BOOL for part in parts)
    return OPERATORS["and"].call(parts, "AND")


def size(expression: Expression) -> int:
    """Return the number of parts of an expression: columns, constants and calls."""
    return sum(1 for _ in parts(expression))


def substituted(expression: Expression, columns: Mapping[str, Expression]) -> Expression | None:
    """Return the expression with the named columns replaced; None if it would grow too large."""
    uses = Counter(references(expression))
    grown = size(expression) + sum(
        count * (size(columns[name]) - 1) for name, count in uses.items() if name in columns
    )
    if grown > MOST_PARTS:
        return None
    return mapped(expression, lambda column: columns.get(column.name, column))


def mapped(expression: Expression, column: Callable[[ColumnRef], Expression]) -> Expression:
    """Return the expression with each column replaced by the result of a function."""
    if isinstance(expression, ColumnRef):
        return column(expression)
    if isinstance(expression, Call):
        return replace(expression, arguments=tuple(mapped(a, column) for a in expression.arguments))
    return expression


def renamed(expression: Expression, names: Callable[[str], str]) -> Expression:
    """Return the expression with its columns renamed."""
    return mapped(expression, lambda column: replace(column, name=names(column.name)))
