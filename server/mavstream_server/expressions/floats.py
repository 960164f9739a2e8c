"""Arithmetic and functions on floats; results that are not finite are row errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_server.columns.column import Array, Column, Mask, both_valid
from mavstream_server.expressions.errors import FloatFlags, RowErrors
from mavstream_server.expressions.operands import (
    Checked,
    Constant,
    Operand,
    checked,
    evaluator,
    failing,
    result,
    unary,
)

_OVERFLOW = "the result of `{}` is beyond the largest float"
_UNDEFINED = {
    "sqrt": "sqrt of a negative number",
    "ln": "ln of zero or a negative number",
    "exp": "the result of exp is beyond the largest float",
    "power": "power has no finite result",
}


def _finite(values: Array, valid: Mask | None, errors: RowErrors, message: str) -> Column:
    finite = np.isfinite(values)
    if finite.all():
        return Column(values, valid)
    return failing(values, valid, ~finite, errors, message)


def _flagged(ufunc: Callable[[Any, Any], Array], flags: FloatFlags, message: str) -> Checked:
    """Return a kernel that checks its results only if the processor has set a flag."""

    def kernel(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
        values = ufunc(a, b)
        if flags.raised:
            flags.raised = False
            return _finite(values, valid, errors, message)
        return Column(values, valid)

    return kernel


def _division(flags: FloatFlags, message: str) -> Checked:
    def kernel(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
        values = np.divide(a, b)
        if not flags.raised:
            return Column(values, valid)
        flags.raised = False
        zero = np.broadcast_to(np.equal(b, 0), values.shape)
        values[zero] = 0
        return _finite(values, both_valid(valid, ~zero), errors, message)

    return kernel


def _remainder(flags: FloatFlags, message: str) -> Checked:
    def kernel(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
        values = np.fmod(a, b)
        zero = np.equal(b, 0)
        if zero.any():
            zero = np.broadcast_to(zero, values.shape)
            values[zero] = 0
            return Column(values, both_valid(valid, ~zero))
        return Column(values, valid)

    return kernel


def float_arithmetic(call: Call, operands: Sequence[Operand], flags: FloatFlags) -> Operand:
    """Compile + - * / % of floats; a zero divisor gives null."""
    message = _OVERFLOW.format(call.function)
    match call.function:
        case "/":
            kernel = _division(flags, message)
        case "%":
            kernel = _remainder(flags, message)
        case name:
            ufunc = {"+": np.add, "-": np.subtract, "*": np.multiply}[name]
            kernel = _flagged(ufunc, flags, message)
    return checked(call, operands, kernel)


def float_sign(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile negation, abs(), floor() and ceil() of a float."""
    kernels = {"negate": np.negative, "abs": np.absolute, "floor": np.floor, "ceil": np.ceil}
    return unary(call, operands, kernels[call.function], guarded=True)


def float_function(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile sqrt(), ln(), exp() and power(); vector libraries may set no flags, so results are checked."""
    message = _UNDEFINED[call.function]
    if call.function == "power":
        return checked(
            call, operands, lambda a, b, valid, errors: _finite(np.power(a, b), valid, errors, message)
        )
    kernel = {"sqrt": np.sqrt, "ln": np.log, "exp": np.exp}[call.function]
    inner = evaluator(operands[0])

    def evaluate(columns: Any, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        return _finite(kernel(column.values), column.valid, errors, message)

    return result(call, evaluate, operands, fails=True)


def float_round(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile round(); halves are rounded away from zero."""
    digits = operands[1].value if len(operands) > 1 and isinstance(operands[1], Constant) else 0
    if digits == 0:
        return unary(call, operands, half_away, guarded=True)
    # Floats have no powers beyond 10**308: rounding changes nothing, or rounds everything to zero.
    if digits > 308:
        return operands[0]
    if digits < -308:
        return unary(call, operands, np.zeros_like)
    power = 10.0 ** abs(digits)
    if digits > 0:
        return unary(call, operands, lambda values: _round_behind_point(values, power), guarded=True)
    message = _OVERFLOW.format("round")
    inner = evaluator(operands[0])

    def evaluate(columns: Any, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        return _finite(half_away(column.values / power) * power, column.valid, errors, message)

    return result(call, evaluate, operands, fails=True)


def _round_behind_point(values: Array, power: float) -> Array:
    scaled = half_away(values * power) / power
    finite = np.isfinite(scaled)
    return scaled if finite.all() else np.where(finite, scaled, values)


def half_away(values: Array) -> Array:
    """Round to whole numbers, halves away from zero; exact, unlike adding a half."""
    whole = np.trunc(values)
    up = np.abs(values - whole) >= 0.5
    return np.where(up, whole + np.copysign(1.0, values), whole) if up.any() else whole
