"""Expressions while plans are rewritten: their parts, their size, columns put in, and what can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from mavstream_protocol.expressions.coercion import BOOL, cast
from mavstream_protocol.expressions.functions import OPERATORS
from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.schema import FieldType

MOST_PARTS = 1000
"""Parts of an expression that is put together here; larger ones would not fit into a text anyway."""

# What gives a value or null in every row. All other functions count as ones that can fail, so a new one is
# moved only when somebody has thought about it. None of those there are is volatile: the language has
# no clock and no chance, and one that had would be left out here, too.
NEVER_FAIL = frozenset(
    (
        *("and", "or", "not", "is_null", "is_true", "is_false"),
        *("=", "<>", "<", "<=", ">", ">=", "between", "in"),
        *("case", "switch", "coalesce", "nullif", "least", "greatest"),
        *("floor", "ceil", "||", "concat", "lower", "upper", "length", "contains", "starts_with"),
        *("hour", "minute", "second", "dayofweek", "epoch", "try_cast"),
    )
)


def can_fail(expression: Expression) -> bool:
    """Whether there may be rows in which the expression cannot be computed: overflow, domain, cast."""
    if not isinstance(expression, Call):
        return False
    return _fails_itself(expression) or any(can_fail(argument) for argument in expression.arguments)


def _fails_itself(call: Call) -> bool:
    match call.function:
        case "cast":
            # A cast of something that is never null is null only in rows that it cannot convert.
            return cast(ColumnRef("", call.arguments[0].type, False), call.type).nullable
        case "like":
            return len(call.arguments) > 2  # a pattern may end with its escape character
        case "%" | "//":
            return call.type is not FieldType.INT or not _harmless_divisor(call.arguments[1])
    return call.function not in NEVER_FAIL


def _harmless_divisor(divisor: Expression) -> bool:
    return isinstance(divisor, Literal) and divisor.value not in (None, 0, -1)


def tells_zeros_apart(expression: Expression) -> bool:
    """Whether it may differ for 0.0 and -0.0, which are equal: as text they are not the same."""
    if not isinstance(expression, Call):
        return False
    shown = expression.type is FieldType.STRING
    shown = shown and any(argument.type is FieldType.FLOAT for argument in expression.arguments)
    return shown or any(map(tells_zeros_apart, expression.arguments))


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    """Return the parts that must all be true, in order; nested conjunctions are taken apart."""
    if isinstance(predicate, Call) and predicate.function == "and":
        return tuple(part for argument in predicate.arguments for part in conjuncts(argument))
    return (predicate,)


def conjunction(parts: Iterable[Expression]) -> Expression:
    """Return what is true where all parts are; there is at least one."""
    parts = tuple(parts)
    if len(parts) == 1:
        return parts[0]
    assert all(part.type is BOOL for part in parts)
    return OPERATORS["and"].call(parts, "AND")


def size(expression: Expression) -> int:
    """Return how many parts an expression has: columns, constants and calls."""
    return sum(1 for _ in _parts(expression))


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _parts(argument)


def put_in(expression: Expression, columns: Mapping[str, Expression]) -> Expression | None:
    """Return the expression with columns replaced, those not named left alone; None if it grows too large."""
    sizes = {name: size(inner) for name, inner in columns.items()}
    grown = sum(sizes.get(p.name, 1) if isinstance(p, ColumnRef) else 1 for p in _parts(expression))
    if grown > MOST_PARTS:
        return None
    return mapped(expression, lambda column: columns.get(column.name, column))


def mapped(expression: Expression, column: Callable[[ColumnRef], Expression]) -> Expression:
    """Return the expression with each column replaced by what a function makes of it."""
    if isinstance(expression, ColumnRef):
        return column(expression)
    if isinstance(expression, Call):
        return replace(expression, arguments=tuple(mapped(a, column) for a in expression.arguments))
    return expression


def renamed(expression: Expression, names: Callable[[str], str]) -> Expression:
    """Return the expression over columns that have other names."""
    return mapped(expression, lambda column: replace(column, name=names(column.name)))
