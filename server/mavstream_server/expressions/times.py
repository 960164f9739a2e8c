"""Parts of timestamps, in UTC, and timestamps moved and truncated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_server.columns.column import Array
from mavstream_server.expressions.errors import FloatFlags
from mavstream_server.expressions.integers import integer_arithmetic
from mavstream_server.expressions.operands import Constant, Operand, unary

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR

# Floor division and modulo are correct for times before 1970. 1 January 1970 was a Thursday; Sunday is 0.
_KERNELS: dict[str, Callable[[Array], Array]] = {
    "year": lambda values: _months(values) // 12 + 1970,
    "month": lambda values: _months(values) % 12 + 1,
    "day": lambda values: values // _DAY - _from_months(_months(values)) // _DAY + 1,
    "hour": lambda values: values // _HOUR % 24,
    "minute": lambda values: values // _MINUTE % 60,
    "second": lambda values: values // _SECOND % 60,
    "dayofweek": lambda values: (values // _DAY + 4) % 7,
    "epoch": lambda values: np.divide(values, float(_SECOND)),
}

_LENGTHS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": _SECOND,
    "minute": _MINUTE,
    "hour": _HOUR,
    "day": _DAY,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _months(values: Array) -> Array:
    """Return the months since January 1970."""
    return values.astype("M8[us]").astype("M8[M]").astype(np.int64)


def _from_months(months: Array) -> Array:
    """Return the first microsecond of each month."""
    return months.astype("M8[M]").astype("M8[us]").astype(np.int64)


def _to_multiple(length: int) -> Callable[[Array], Array]:
    return lambda values: values // length * length


def _to_months(count: int) -> Callable[[Array], Array]:
    return lambda values: _from_months(_months(values) // count * count)


_TRUNCATIONS: dict[str, Callable[[Array], Array]] = {
    **{unit: _to_multiple(length) for unit, length in _LENGTHS.items()},
    # The Monday before 1 January 1970 was three days earlier.
    "week": lambda values: (values + 3 * _DAY) // (7 * _DAY) * (7 * _DAY) - 3 * _DAY,
    **{unit: _to_months(count) for unit, count in _MONTHS.items()},
}


def time_part(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile year() to second(), dayofweek() and epoch()."""
    return unary(call, operands, _KERNELS[call.function])


def truncation(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile date_trunc(); weeks begin on Monday."""
    time, unit = operands
    assert isinstance(unit, Constant)
    return unary(call, [time], _TRUNCATIONS[unit.value])


def shift(call: Call, operands: Sequence[Operand], flags: FloatFlags) -> Operand:
    """Compile a timestamp plus or minus an interval, whose microseconds are the second operand."""
    return integer_arithmetic(replace(call, function="+"), operands, flags)
