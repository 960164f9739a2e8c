"""Estimates: default costs, selectivities and sizes for operators that were not measured.

Costs are nanoseconds per row, close to what the engine needs for rows in trains of some hundreds. Their
absolute values matter little: for a running plan, they are scaled to the measured costs.
"""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.schema import Field, FieldType

BASE_COSTS = {
    "select": 30.0,
    "project": 15.0,
    "split": 40.0,
    "union": 8.0,
    "ordered": 120.0,
    "aggregate": 150.0,
    "sessions": 200.0,
    "except": 250.0,
    "join": 300.0,
    "table": 150.0,
}
"""Costs (ns) per input row by kind, without expressions; `ordered` is added for an order by time."""
PAIR_COST = 40.0
"""Cost (ns) of combining two rows."""

COLUMN_COST = 4.0
"""Cost (ns) of emitting a column of a pair."""

_DEFAULT_FUNCTION_COST = 5.0
_FUNCTION_COSTS = {
    **dict.fromkeys(("like", "contains", "starts_with", "lower", "upper", "substr", "||", "concat"), 40.0),
    **dict.fromkeys(("sqrt", "ln", "exp", "power", "round", "cast", "try_cast"), 20.0),
}

_SELECTIVITIES = {
    "=": 0.1,
    "<>": 0.9,
    "like": 0.25,
    "contains": 0.25,
    "starts_with": 0.25,
    "between": 0.25,
    "is_null": 0.1,
    **dict.fromkeys(("<", "<=", ">", ">="), 1 / 3),
}
_DEFAULT_SELECTIVITY = 0.5
KEYS_EQUAL = 0.1
"""The share of pairs of rows with equal keys."""
GROUPS = 10.0
"""The number of groups in a window of an aggregate with keys."""
LEFT_OVER = 0.5
"""The share of left rows that an except emits."""

_HIDDEN_BYTES = 24.0  # arrival, time and position
_WIDTHS = {FieldType.BOOL: 1.0}


def evaluation_cost(expression: Expression) -> float:
    """Return the cost (ns) of an expression per row; constants and plain columns cost nothing."""
    if not isinstance(expression, Call):
        return 0.0
    own = _FUNCTION_COSTS.get(expression.function, _DEFAULT_FUNCTION_COST)
    return own + sum(evaluation_cost(argument) for argument in expression.arguments)


def selectivity(predicate: Expression) -> float:
    """Return the expected share of rows that satisfy a predicate, if its parts are independent."""
    match predicate:
        case Literal():
            return 1.0 if predicate.value is True else 0.0
        case ColumnRef():
            return _DEFAULT_SELECTIVITY
        case Call(function="and"):
            return _product(selectivity(argument) for argument in predicate.arguments)
        case Call(function="or"):
            return 1 - _product(1 - selectivity(argument) for argument in predicate.arguments)
        case Call(function="not"):
            return 1 - selectivity(predicate.arguments[0])
        case Call(function="in"):
            return min(_DEFAULT_SELECTIVITY, 0.1 * (len(predicate.arguments) - 1))
    return _SELECTIVITIES.get(predicate.function, _DEFAULT_SELECTIVITY)


def row_bytes(fields: Iterable[Field]) -> float:
    """Return the bytes of a row with these columns; the engine stores strings as codes."""
    return _HIDDEN_BYTES + sum(_WIDTHS.get(field.type, 8.0) + field.nullable for field in fields)


def _product(values: Iterable[float]) -> float:
    result = 1.0
    for value in values:
        result *= value
    return result
