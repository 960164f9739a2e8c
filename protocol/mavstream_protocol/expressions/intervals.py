"""Spans of time in SQL: `INTERVAL '1' SECOND`, `INTERVAL '90 seconds'`."""

from __future__ import annotations

import re
from fractions import Fraction

from mavstream_protocol.expressions.conversions import INT_MAX

_SECOND = 1_000_000
UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": _SECOND,
    "minute": 60 * _SECOND,
    "hour": 3600 * _SECOND,
    "day": 86_400 * _SECOND,
    "week": 7 * 86_400 * _SECOND,
}
"""Microseconds of each unit of a fixed length."""
_CALENDAR = ("month", "quarter", "year", "decade", "century")
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
}
_WRITTEN = re.compile(r"\s*([+-]?)\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*")


def parse_interval(text: str, unit: str = "") -> int:
    """Return the microseconds of an interval such as ('1', 'SECOND') or '90 seconds'. Raises ValueError."""
    match = _WRITTEN.fullmatch(text)
    if match is None or bool(match[3]) == bool(unit):
        shown = f"'{text}' {unit}".strip()
        lacks = " without a unit" if match is not None and not unit else ""
        raise ValueError(f"{shown}{lacks} is not an interval; write one such as INTERVAL '1' SECOND")
    microseconds = Fraction(match[2]) * _microseconds(match[3] or unit)
    if microseconds.denominator != 1:
        raise ValueError(f"the interval '{text}' is finer than a microsecond; use whole microseconds")
    if microseconds > INT_MAX:
        raise ValueError(f"the interval '{text}' is too long; at most {INT_MAX} microseconds fit")
    return -int(microseconds) if match[1] == "-" else int(microseconds)


def format_interval(microseconds: int) -> str:
    """Return the SQL of an interval in its largest exact unit, such as `INTERVAL '500' MILLISECOND`."""
    units = [unit for unit in reversed(UNITS) if unit != "week"]
    unit = next(unit for unit in units if microseconds % UNITS[unit] == 0) if microseconds else "second"
    return f"INTERVAL '{microseconds // UNITS[unit]}' {unit.upper()}"


def _microseconds(unit: str) -> int:
    name = unit.lower()
    singular = _SHORT.get(name, name.removesuffix("s"))
    if singular in UNITS:
        return UNITS[singular]
    if singular in _CALENDAR:
        raise ValueError(f"the length of a {singular} depends on the calendar; use days, hours or seconds")
    raise ValueError(f"there is no unit of time `{unit}`; known are {', '.join(UNITS)}")
