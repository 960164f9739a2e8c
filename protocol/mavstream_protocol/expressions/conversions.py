"""Conversions between text and values: one meaning for literals in the parser and casts in backends.

They follow DuckDB, but for two cases where its answer would surprise: a zone offset other than UTC is
refused (DuckDB drops it), and texts such as `inf` are refused because floats are always finite.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

INT_MIN = -(1 << 63)
INT_MAX = (1 << 63) - 1

_SPACE = " \t\n\v\f\r"
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_NUMBER = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*")
_BINARY = re.compile(r"0[bB][01]+(?:_[01]+)*")
_TIMESTAMP = re.compile(
    r"([0-9]{1,6})([-/])([0-9]{1,2})\2([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?\s?(?:Z|UTC|[+-]00(?::?00)?)?)?"
)
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


def int_of_text(text: str) -> int | None:
    """Parse an integer, with halves rounded away from zero; None if the text is not a 64-bit integer."""
    text = text.strip(_SPACE)
    if _WHOLE.fullmatch(text) and len(text) <= 40:
        value = int(text)
    elif _HEXADECIMAL.fullmatch(text) or _BINARY.fullmatch(text):
        value = int(text, 0)
    elif _NUMBER.fullmatch(text) and len(text) <= 400:
        try:
            number = Decimal(text)
        except InvalidOperation:  # an exponent of twenty digits
            return None
        # Outside these magnitudes the answer is known, and rounding would first write out the exponent.
        if number.adjusted() > 19:
            return None if number else 0
        value = 0 if number.adjusted() < -2 else int(number.to_integral_value(ROUND_HALF_UP))
    else:
        return None
    return value if INT_MIN <= value <= INT_MAX else None


def float_of_text(text: str) -> float | None:
    """Parse a finite number; None if the text is not one."""
    text = text.strip(_SPACE)
    if _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def bool_of_text(text: str) -> bool | None:
    """Parse a bool; None if the text is not one."""
    return _BOOLEANS.get(text.lower())


def timestamp_of_text(text: str) -> int | None:
    """Return microseconds since 1970 of `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]][Z]`, or None."""
    match = _TIMESTAMP.fullmatch(text.strip(_SPACE))
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[3]), int(match[4])
    if not 1 <= month <= 12 or not 1 <= day <= _days_in_month(year, month):
        return None
    hour, minute, second = (int(match[group] or 0) for group in (5, 6, 7))
    micros = int((match[8] or "0")[:6].ljust(6, "0"))
    end_of_day = hour == 24 and minute == second == micros == 0
    if (hour > 23 and not end_of_day) or minute > 59 or second > 59:
        return None
    time = ((hour * 60 + minute) * 60 + second) * _SECOND + micros
    value = _days_from_civil(year, month, day) * _DAY + time
    return value if INT_MIN < value < INT_MAX else None


def text_of_float(value: float) -> str:
    """Format a finite number so that parsing the text returns the same number."""
    return repr(value)


def text_of_bool(value: bool) -> str:
    """Format a bool."""
    return "true" if value else "false"


def text_of_timestamp(value: int) -> str:
    """Write microseconds since 1970 as `YYYY-MM-DD HH:MM:SS[.ffffff]`, without trailing zeros."""
    days, rest = divmod(value, _DAY)
    seconds, micros = divmod(rest, _SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    year, month, day = _civil_from_days(days)
    era = "" if year > 0 else " (BC)"
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    shown_year = year if year > 0 else 1 - year
    return f"{shown_year:04d}-{month:02d}-{day:02d}{era} {hour:02d}:{minute:02d}:{second:02d}{fraction}"


def _days_in_month(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _DAYS_IN_MONTH[month - 1]


# Dates are computed in eras of 400 years that start on 1 March, so that leap days are at the end. The
# standard library only supports the years 1 to 9999, int64 microseconds exceed them.
def _days_from_civil(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _civil_from_days(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
