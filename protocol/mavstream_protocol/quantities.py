"""Quantities as people write them: durations (`500ms`), sizes (`64MB`) and percentages (`5%`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer, WithJsonSchema

from mavstream_protocol.explained import explained, refusal

INT64_MAX = 2**63 - 1

_AMOUNT = r"[0-9]+(?:\.[0-9]+)?"
_WRITTEN = re.compile(rf"({_AMOUNT})([^0-9.\s+-]+)")
_BARE_NUMBER = re.compile(rf"[+-]?{_AMOUNT}")
# Longer text is no honest quantity, and arithmetic on thousands of digits is not free.
_LONGEST = 40
# Enough decimals for every float, since percentages are held as floats and must read back the same.
_PERCENT_AMOUNT = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,340})?")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Units and error messages of one kind of integer quantity."""

    noun: str
    base: str
    units: Mapping[str, int]
    spelled: tuple[str, ...]
    """Units used for formatting, largest first; the last one has factor 1."""
    zero: str
    example: str

    @property
    def pattern(self) -> str:
        return rf"^{_AMOUNT}({'|'.join(self.units)})$"

    def parse(self, text: str) -> int:
        """Return the quantity in base units; raise ValueError with a message for people."""
        shown = _shortened(text)
        match = _WRITTEN.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None:
            raise ValueError(self._why_unreadable(text, shown))
        amount, unit = match.groups()
        factor = self.units.get(unit)
        if factor is None:
            raise ValueError(
                f"{self.noun} {shown} has the unknown unit '{unit}': use one of {', '.join(self.units)}"
            )
        value = Fraction(amount) * factor
        if value.denominator != 1:
            raise ValueError(f"{self.noun} {shown} is finer than one {self.base}: use whole {self.base}s")
        if value > INT64_MAX:
            raise ValueError(f"{self.noun} {shown} is too large: at most {INT64_MAX} {self.base}s fit")
        return int(value)

    def format(self, value: int) -> str:
        """Return the text in the largest unit that is exact, so that parsing it returns `value`."""
        if not 0 <= value <= INT64_MAX:
            raise ValueError(f"{self.noun} of {value} {self.base}s cannot be written: it must be 0..2^63-1")
        if value == 0:
            return self.zero
        unit = next(unit for unit in self.spelled if value % self.units[unit] == 0)
        return f"{value // self.units[unit]}{unit}"

    def _why_unreadable(self, text: str, shown: str) -> str:
        write = f"write a number and a unit, such as {self.example}"
        if not text.strip():
            return f"{self.noun} is empty: {write}"
        if text.strip().startswith("-"):
            return f"{self.noun} {shown} is negative: {write}"
        if re.search(r"\s", text):
            return f"{self.noun} {shown} contains white space: {write}, without spaces"
        if len(text) <= _LONGEST and _BARE_NUMBER.fullmatch(text):
            return f"{self.noun} {shown} has no unit: {write}"
        return f"{self.noun} {shown} cannot be read: {write}"


_MS, _S = 1_000, 1_000_000
_DURATIONS = _Scale(
    noun="duration",
    base="microsecond",
    units=MappingProxyType(
        {"us": 1, "ms": _MS, "s": _S, "m": 60 * _S, "min": 60 * _S, "h": 3600 * _S, "d": 86_400 * _S}
    ),
    spelled=("d", "h", "m", "s", "ms", "us"),
    zero="0s",
    example="500ms, 2s or 1h",
)
_SIZES = _Scale(
    noun="size",
    base="byte",
    units=MappingProxyType(
        {
            **{"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
            **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
        }
    ),
    # Largest factor first: a multiple of 2^40 that is also one of 10^12 is written in TiB.
    spelled=("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB", "B"),
    zero="0B",
    example="64MB, 1.5GB or 512KiB",
)

_COSTS = _Scale(
    noun="cost",
    base="nanosecond",
    units=MappingProxyType({"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}),
    spelled=("s", "ms", "us", "ns"),
    zero="0ns",
    example="250ns, 20us or 1.5ms",
)


def parse_duration(text: str) -> int:
    """Return microseconds; units are us, ms, s, m or min, h, d. Raises ValueError."""
    return _DURATIONS.parse(text)


def format_duration(microseconds: int) -> str:
    """Return the text that `parse_duration` reads back exactly, such as `500ms`."""
    return _DURATIONS.format(microseconds)


def parse_size(text: str) -> int:
    """Return bytes; KB, MB, ... are powers of 1000, KiB, MiB, ... powers of 1024. Raises ValueError."""
    return _SIZES.parse(text)


def format_size(count: int) -> str:
    """Return the text that `parse_size` reads back exactly, such as `64MB`."""
    return _SIZES.format(count)


def parse_cost(text: str) -> int:
    """Return nanoseconds; units are ns, us, ms, s. Raises ValueError."""
    return _COSTS.parse(text)


def format_cost(nanoseconds: int) -> str:
    """Return the text that `parse_cost` reads back exactly, such as `250ns`."""
    return _COSTS.format(nanoseconds)


def parse_percent(text: str) -> float:
    """Return the fraction, 0.0 to 1.0, for a text such as `5%`. Raises ValueError."""
    amount = text.removesuffix("%")
    shown = _shortened(text)
    if amount.startswith("-"):
        raise ValueError(f"percentage {shown} is negative: write 0% to 100%")
    if not _PERCENT_AMOUNT.fullmatch(amount):
        raise ValueError(f"percentage {shown} cannot be read: write a number and a percent sign, such as 5%")
    if amount == text:
        raise ValueError(
            f"percentage {shown} has no percent sign: write {shown[1:-1]}% as text, or a number 0..1"
        )
    if (percent := Fraction(amount)) > 100:
        raise ValueError(f"percentage {shown} is above 100%: write 0% to 100%")
    return float(percent / 100)


def format_percent(fraction: float) -> str:
    """Return the text that `parse_percent` reads back exactly, such as `5%`."""
    # repr returns the shortest digits of the float; multiplying them as a decimal adds no rounding error.
    percent = (Decimal(repr(float(fraction))) * 100).normalize()
    return f"{percent:f}%"


def _shortened(text: str) -> str:
    return f"'{text}'" if len(text) <= _LONGEST else f"'{text[:_LONGEST]}...'"


def _whole(scale: _Scale, value: object) -> int:
    if isinstance(value, str):
        return scale.parse(value)
    if isinstance(value, timedelta) and scale is _DURATIONS:
        return _whole_microseconds(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(
            f"{scale.noun} {value} is a bare number: write text with a unit, such as {scale.example}"
        )
    raise ValueError(
        f"{scale.noun} must be text such as {scale.example}, got a value of type {type(value).__name__}"
    )


def _whole_microseconds(value: timedelta) -> int:
    if value < timedelta(0):
        raise ValueError(f"duration {value!r} is negative: give a timedelta of zero or more")
    return value // timedelta(microseconds=1)


def _percent(value: object) -> float:
    if isinstance(value, str):
        return parse_percent(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= 1:
            return float(value)
        raise ValueError(f"percentage {value} is not between 0 and 1: write a fraction, or text such as 5%")
    raise ValueError(f"percentage must be text such as 5%, got a value of type {type(value).__name__}")


def _above_zero(scale: _Scale) -> AfterValidator:
    def validate(value: int) -> int:
        if value == 0:
            raise refusal(
                f"{scale.noun}_zero", f"{scale.noun} must be above zero: write for example {scale.example}"
            )
        return value

    return AfterValidator(validate)


def _shown(pattern: str, description: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "string", "pattern": pattern, "description": description, "examples": list(examples)}
    )


_DURATION_SHOWN = _shown(
    _DURATIONS.pattern, "A number and a unit: us, ms, s, m (or min), h, d.", "500ms", "1.5s"
)
_SIZE_SHOWN = _shown(
    _SIZES.pattern, "A number and a unit: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB.", "64MB", "1.5GB"
)

NonNegativeDuration = Annotated[
    int,
    explained("duration", lambda value: _whole(_DURATIONS, value)),
    PlainSerializer(format_duration, return_type=str),
    _DURATION_SHOWN,
]
"""Microseconds, zero or more; on the wire text such as `500ms`, in Python also a timedelta."""

PositiveDuration = Annotated[NonNegativeDuration, _above_zero(_DURATIONS), _DURATION_SHOWN]
"""Microseconds, more than zero; written like `NonNegativeDuration`."""

Duration = NonNegativeDuration
"""The duration to use where zero is a sensible value."""

NonNegativeSize = Annotated[
    int,
    explained("size", lambda value: _whole(_SIZES, value)),
    PlainSerializer(format_size, return_type=str),
    _SIZE_SHOWN,
]
"""Bytes, zero or more; on the wire text such as `64MB`."""

PositiveSize = Annotated[NonNegativeSize, _above_zero(_SIZES), _SIZE_SHOWN]
"""Bytes, more than zero; written like `NonNegativeSize`."""

_COST_SHOWN = _shown(_COSTS.pattern, "A number and a unit: ns, us, ms, s.", "250ns", "20us")

PositiveCost = Annotated[
    int,
    explained("cost", lambda value: _whole(_COSTS, value)),
    PlainSerializer(format_cost, return_type=str),
    _above_zero(_COSTS),
    _COST_SHOWN,
]
"""Nanoseconds of work, more than zero; on the wire text such as `250ns`."""

Size = NonNegativeSize
"""The size to use where zero is a sensible value."""

Percent = Annotated[
    float,
    explained("percent", _percent),
    PlainSerializer(format_percent, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"^{_AMOUNT}%$"},
                {"type": "number", "minimum": 0, "maximum": 1},
            ],
            "description": "Text such as 5%, or a fraction between 0 and 1.",
            "examples": ["5%", 0.05],
        }
    ),
]
"""A fraction between 0 and 1; on the wire text such as `5%`."""
