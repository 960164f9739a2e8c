"""Parts of timestamps, in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_server.columns.column import Array
from mavstream_server.expressions.errors import FloatFlags
from mavstream_server.expressions.operands import Operand, unary

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR

# Floor division and modulo are correct for times before 1970. 1 January 1970 was a Thursday; Sunday is 0.
_KERNELS: dict[str, Callable[[Array], Array]] = {
    "hour": lambda values: values // _HOUR % 24,
    "minute": lambda values: values // _MINUTE % 60,
    "second": lambda values: values // _SECOND % 60,
    "dayofweek": lambda values: (values // _DAY + 4) % 7,
    "epoch": lambda values: np.divide(values, float(_SECOND)),
}


def time_part(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile hour(), minute(), second(), dayofweek() and epoch()."""
    return unary(call, operands, _KERNELS[call.function])
