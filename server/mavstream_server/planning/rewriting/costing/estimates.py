"""Estimates: costs, selectivities and sizes of what was never measured.

Costs are nanoseconds per row, near what the engine needs for rows in trains of some hundreds. They matter
less than they seem to: where a plan runs, all are scaled to what was measured.
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
    "except": 250.0,
    "join": 300.0,
    "table": 150.0,
}
"""To take a row in and hand it on, apart from expressions; `ordered` is what an order by time adds."""
PAIR_COST = 40.0
"""To put two rows side by side."""

COLUMN_COST = 4.0
"""To hand a column of a pair on."""

_PART_COST = 5.0
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
_OTHERWISE = 0.5
KEYS_EQUAL = 0.1
"""Share of pairs of rows with equal keys."""
GROUPS = 10.0
"""Groups in a window, where there are keys."""
LEFT_OVER = 0.5
"""Share of left rows that an except leaves."""

_HIDDEN = 24.0  # arrival, time and position
_WIDTHS = {FieldType.BOOL: 1.0}


def evaluation_cost(expression: Expression) -> float:
    """Return what an expression costs per row; a column as it is costs nothing."""
    if not isinstance(expression, Call):
        return 0.0
    own = _FUNCTION_COSTS.get(expression.function, _PART_COST)
    return own + sum(evaluation_cost(argument) for argument in expression.arguments)


def selectivity(predicate: Expression) -> float:
    """Return the share of rows for which a predicate is likely to be true, its parts taken as independent."""
    match predicate:
        case Literal():
            return 1.0 if predicate.value is True else 0.0
        case ColumnRef():
            return _OTHERWISE
        case Call(function="and"):
            return _product(selectivity(argument) for argument in predicate.arguments)
        case Call(function="or"):
            return 1 - _product(1 - selectivity(argument) for argument in predicate.arguments)
        case Call(function="not"):
            return 1 - selectivity(predicate.arguments[0])
        case Call(function="in"):
            return min(_OTHERWISE, 0.1 * (len(predicate.arguments) - 1))
    return _SELECTIVITIES.get(predicate.function, _OTHERWISE)


def row_bytes(fields: Iterable[Field]) -> float:
    """Return the bytes of a row with these columns; strings are codes inside the engine."""
    return _HIDDEN + sum(_WIDTHS.get(field.type, 8.0) + field.nullable for field in fields)


def _product(values: Iterable[float]) -> float:
    result = 1.0
    for value in values:
        result *= value
    return result
