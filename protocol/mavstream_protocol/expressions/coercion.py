"""Type conversion of typed expressions, implicit or by CAST."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.conversions import timestamp_of_text
from mavstream_protocol.expressions.typed import Call, Expression, Literal
from mavstream_protocol.schema import FieldType

INT, FLOAT, BOOL, STRING, TIMESTAMP = (
    FieldType.INT,
    FieldType.FLOAT,
    FieldType.BOOL,
    FieldType.STRING,
    FieldType.TIMESTAMP,
)

# The types that CAST accepts for each target type. Timestamps do not convert to numbers: use epoch().
CASTS: dict[FieldType, frozenset[FieldType]] = {
    INT: frozenset({INT, FLOAT, BOOL, STRING}),
    FLOAT: frozenset({INT, FLOAT, BOOL, STRING}),
    BOOL: frozenset({INT, FLOAT, BOOL, STRING}),
    STRING: frozenset(FieldType),
    TIMESTAMP: frozenset({STRING, TIMESTAMP}),
}

# Casts that turn every value into a value; the others fail in rows that they cannot convert.
_SAFE_CASTS = {(INT, FLOAT), (INT, BOOL), (FLOAT, BOOL), (BOOL, INT), (BOOL, FLOAT)}


def is_null(expression: Expression) -> bool:
    """Whether an expression is the literal NULL, which fits every type."""
    return isinstance(expression, Literal) and expression.value is None


def mismatch(part: object, expected: str, found: str, advice: str) -> ExpressionError:
    """Return the error for an argument of a wrong type."""
    return ExpressionError("type_mismatch", f"`{part}`: expected {expected}, found {found}; {advice}")


def cast(expression: Expression, target: FieldType) -> Expression:
    """Convert an expression to a type that CAST allows; literals that always convert do so here."""
    if expression.type is target:
        return expression
    if is_null(expression):
        return Literal(None, target)
    if isinstance(expression, Literal) and (expression.type, target) == (INT, FLOAT):
        assert isinstance(expression.value, int)
        return Literal(float(expression.value), FLOAT)
    safe = target is STRING or (expression.type, target) in _SAFE_CASTS
    return Call("cast", (expression,), target, expression.nullable or not safe)


def explicit_cast(expression: Expression, target: FieldType, part: object, *, failsafe: bool) -> Expression:
    """Type-check and build CAST, or TRY_CAST if `failsafe`."""
    if not is_null(expression) and expression.type not in CASTS[target]:
        advice = "use epoch() for a number" if expression.type is TIMESTAMP else "go through a string"
        expected = f"a type that converts to {target}"
        raise mismatch(part, expected, str(expression.type), advice)
    if is_null(expression):
        # This remains a call so that, unlike a bare NULL, it has its type wherever it is used.
        return Call("cast", (Literal(None, target),), target, True)
    converted = cast(expression, target)
    if failsafe and isinstance(converted, Call) and converted is not expression:
        return Call("try_cast", converted.arguments, target, converted.nullable)
    return converted


def timestamp_literal(text: str) -> Literal:
    """Parse a timestamp that is written as a constant; raises ExpressionError if it is not one."""
    value = timestamp_of_text(text)
    if value is None:
        raise ExpressionError(
            "invalid_literal",
            f"'{text}' is not a timestamp; write one in UTC, like '2026-01-31 12:00:00'",
        )
    return Literal(value, TIMESTAMP)


def coerce(expression: Expression, target: FieldType, part: object, advice: str = "") -> Expression:
    """Convert implicitly: NULL to every type, int to float, a string constant to timestamp."""
    if expression.type is target:
        return expression
    if is_null(expression) or (expression.type is INT and target is FLOAT):
        return cast(expression, target)
    if target is TIMESTAMP and isinstance(expression, Literal) and isinstance(expression.value, str):
        return timestamp_literal(expression.value)
    if expression.type is TIMESTAMP and target.numeric:
        advice = advice or "use epoch() for a number of seconds"
    raise mismatch(part, str(target), str(expression.type), advice or f"write CAST(... AS {target})")


def common_type(expressions: Sequence[Expression], part: object) -> FieldType:
    """Return the one type that all expressions convert to by themselves; INT if all are NULL."""
    types = {expression.type for expression in expressions if not is_null(expression)}
    if not types:
        return INT
    if types == {INT, FLOAT}:
        return FLOAT
    if types == {STRING, TIMESTAMP} and all(
        isinstance(expression, Literal) for expression in expressions if expression.type is STRING
    ):
        return TIMESTAMP
    if len(types) > 1:
        found = " and ".join(sorted(types))
        raise mismatch(part, "values of one type", found, "convert one side with CAST(... AS type)")
    return next(iter(types))


def unify(expressions: Sequence[Expression], part: object) -> tuple[Expression, ...]:
    """Convert all expressions to their common type."""
    first = expressions[0]
    if not isinstance(first, Literal) and all(other.type is first.type for other in expressions):
        return tuple(expressions)  # the usual case, without the rules for constants
    target = common_type(expressions, part)
    return tuple(coerce(expression, target, part) for expression in expressions)
