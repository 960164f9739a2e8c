"""Comparisons, BETWEEN and IN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Array, Column
from mavstream_server.expressions.errors import FloatFlags, RowErrors
from mavstream_server.expressions.logic import connect
from mavstream_server.expressions.operands import (
    Columns,
    Constant,
    Operand,
    Slot,
    Vector,
    always_null,
    binary,
    evaluator,
    null_in,
    result,
)
from mavstream_server.expressions.text_order import compare_text_columns, compare_with_text, text_membership

UFUNCS: dict[str, Callable[[Any, Any], Array]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
MIRRORED: dict[str, str] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def comparison(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile a comparison of two operands of one type."""
    left, right = operands
    if null_in(operands):
        return always_null(call, operands)
    if isinstance(left, Constant):
        # The constant becomes the right operand, so that numpy compares array and scalar in one call.
        mirrored = Call(MIRRORED[call.function], call.arguments, call.type, call.nullable)
        return comparison(mirrored, (right, left), _flags)
    if left.type is not FieldType.STRING:
        return binary(call, operands, UFUNCS[call.function])
    if isinstance(right, Constant):
        return result(call, compare_with_text(call.function, left.evaluate, right.value), operands)
    return result(call, compare_text_columns(UFUNCS[call.function], left.evaluate, right.evaluate), operands)


def compare(name: str, left: Operand, right: Operand) -> Operand:
    """Compile a comparison that is part of another function."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        left = Vector(evaluator(left), left.type)
    return comparison(Call(name, (), FieldType.BOOL, True), (left, right), FloatFlags())


def between(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile BETWEEN; both bounds are inclusive."""
    slot = Slot(operands[0])
    low, high = compare(">=", slot.operand, operands[1]), compare("<=", slot.operand, operands[2])
    return _around(call, slot, connect(Call("and", (), FieldType.BOOL, True), (low, high)), operands)


def membership(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile IN; null if no choice is equal and one is null."""
    value, *choices = operands
    constants = [choice.value for choice in choices if isinstance(choice, Constant)]
    if isinstance(value, Vector) and len(constants) == len(choices) and None not in constants:
        if value.type is FieldType.STRING:
            return result(call, text_membership(value.evaluate, constants), operands)
        if len(constants) > 4:
            return _in_set(call, value, constants)
    slot = Slot(value)
    equal = [compare("=", slot.operand, choice) for choice in choices]
    return _around(call, slot, connect(Call("or", (), FieldType.BOOL, True), equal), operands)


def _in_set(call: Call, value: Vector, constants: list[Any]) -> Operand:
    inner = value.evaluate
    table = np.unique(np.array(constants))

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        return Column(np.isin(column.values, table), column.valid)

    return result(call, evaluate, (value,), fails=True)


def _around(call: Call, slot: Slot, body: Operand, operands: Sequence[Operand]) -> Operand:
    """Evaluate the slot, then the operand that uses it."""
    inner = evaluator(body)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        slot.column = slot.source(columns, size, errors)
        column = inner(columns, size, errors)
        slot.column = None
        return column

    return result(call, evaluate, operands)
