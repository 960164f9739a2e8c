"""Arithmetic on 64-bit integers; overflow is a row error.

The bounds of a batch decide whether an overflow is possible; only then are rows checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mavstream_protocol.expressions.conversions import INT_MAX, INT_MIN
from mavstream_protocol.expressions.typed import Call
from mavstream_server.columns.column import Array, Column, Mask, both_valid
from mavstream_server.expressions.errors import FloatFlags, RowErrors
from mavstream_server.expressions.operands import Constant, Operand, checked, evaluator, failing, result

_OVERFLOW = "{} of integers exceeds 64 bits"


def _bounds(values: Any) -> tuple[int, int]:
    """Return minimum and maximum of an array or a scalar; zero for no rows."""
    if isinstance(values, int):
        return values, values
    if not len(values):
        return 0, 0
    return int(values.min()), int(values.max())


def _sum_fits(a: Any, b: Any) -> bool:
    """Return whether no sum can overflow; with a scalar only one bound of the array matters."""
    if isinstance(a, int):
        a, b = b, a
    if not isinstance(b, int):
        (a_low, a_high), (b_low, b_high) = _bounds(a), _bounds(b)
        return a_high + b_high <= INT_MAX and a_low + b_low >= INT_MIN
    if not len(a):
        return True
    return int(a.max()) + b <= INT_MAX if b > 0 else int(a.min()) + b >= INT_MIN


def _add(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
    values = np.add(a, b)
    if _sum_fits(a, b):
        return Column(values, valid)
    failed = ((a ^ values) & (b ^ values)) < 0
    return failing(values, valid, failed, errors, _OVERFLOW.format("the sum"))


def _subtract(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
    values = np.subtract(a, b)
    if isinstance(b, int):
        if _sum_fits(a, -b):
            return Column(values, valid)
    else:
        (a_low, a_high), (b_low, b_high) = _bounds(a), _bounds(b)
        if a_high - b_low <= INT_MAX and a_low - b_high >= INT_MIN:
            return Column(values, valid)
    failed = ((a ^ b) & (a ^ values)) < 0
    return failing(values, valid, failed, errors, _OVERFLOW.format("the difference"))


def _multiply(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
    values = np.multiply(a, b)
    (a_low, a_high), (b_low, b_high) = _bounds(a), _bounds(b)
    corners = (a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
    if max(corners) <= INT_MAX and min(corners) >= INT_MIN:
        return Column(values, valid)
    # A product that overflowed is off by a multiple of 2**64, so dividing it does not give the operand back.
    divisor = np.where(np.equal(b, 0) | np.equal(b, -1), 1, b)
    failed = np.where(np.equal(b, -1), np.equal(a, INT_MIN), np.not_equal(values // divisor, a))
    failed &= np.not_equal(b, 0)
    return failing(values, valid, failed, errors, _OVERFLOW.format("the product"))


def _divider(remainder: bool) -> Callable[[Any, Any, Mask | None, RowErrors], Column]:
    """Truncating division, or its remainder; a zero divisor gives null."""

    def kernel(a: Any, b: Any, valid: Mask | None, errors: RowErrors) -> Column:
        if isinstance(b, int) and b not in (0, -1):
            rest = np.fmod(a, b)
            return Column(rest if remainder else np.floor_divide(a - rest, b), valid)
        zero = np.equal(b, 0)
        if zero.any():
            divisor: Any = np.where(zero, 1, b)
            valid = both_valid(valid, ~zero) if zero.ndim else np.zeros(len(a), dtype=np.bool_)
        else:
            divisor = b
        # The only quotient that overflows; DuckDB rejects its remainder as well.
        failed = np.equal(a, INT_MIN) & np.equal(divisor, -1)
        if failed.any():
            divisor = np.where(failed, 1, divisor)
        rest = np.fmod(a, divisor)
        values = rest if remainder else np.floor_divide(a - rest, divisor)
        if failed.any():
            return failing(values, valid, failed, errors, _OVERFLOW.format("the quotient"))
        return Column(values, valid)

    return kernel


_KERNELS = {"+": _add, "-": _subtract, "*": _multiply, "//": _divider(False), "%": _divider(True)}


def integer_arithmetic(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile + - * // % of integers."""
    return checked(call, operands, _KERNELS[call.function])


def integer_sign(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile negation and abs() of an integer; only the smallest integer overflows."""
    inner = evaluator(operands[0])
    kernel = np.negative if call.function == "negate" else np.absolute

    def evaluate(columns: Any, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        values = kernel(column.values)
        if size and int(column.values.min()) == INT_MIN:
            smallest = np.equal(column.values, INT_MIN)
            return failing(values, column.valid, smallest, errors, _OVERFLOW.format("the negation"))
        return Column(values, column.valid)

    return result(call, evaluate, operands, fails=True)


def integer_round(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile round() to digits before the decimal point; halves are rounded away from zero."""
    digits = operands[1].value if len(operands) > 1 and isinstance(operands[1], Constant) else 0
    inner = evaluator(operands[0])
    if digits >= 0:
        return operands[0]
    power = 10 ** min(-digits, 20)

    def evaluate(columns: Any, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        values, failed = _rounded(column.values, power)
        if failed.any():
            return failing(values, column.valid, failed, errors, _OVERFLOW.format("the rounding"))
        return Column(values, column.valid)

    return result(call, evaluate, operands, fails=True)


def _rounded(values: Array, power: int) -> tuple[Array, Mask]:
    if power > 10**18:
        none = np.zeros(len(values), dtype=np.int64)
        half = power // 2
        if half > INT_MAX:
            return none, np.zeros(len(values), dtype=np.bool_)
        return none, np.greater_equal(values, half) | np.less_equal(values, -half)
    rest = np.fmod(values, power)
    base = values - rest
    step = np.where(np.abs(rest) >= power // 2, np.sign(rest) * power, 0)
    failed = np.where(step > 0, base > INT_MAX - power, (step < 0) & (base < INT_MIN + power))
    return base + step, failed
