"""Checks and converts single values, with the error texts for values that a field does not accept."""

from __future__ import annotations

import math
from datetime import datetime
from enum import Enum
from typing import Final

import orjson

from mavstream_protocol.instants import read_instant
from mavstream_protocol.schema import Field, FieldType

Cell = int | float | bool | str | None
"""A value in canonical form; a timestamp is an int of microseconds."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_LONGEST = 40


class Absence(Enum):
    """The mark for a field that a row does not have and must have."""

    MISSING = "missing"


MISSING: Final = Absence.MISSING


class CellRefused(Exception):
    """A value that a field does not accept; `code` and `detail` are copied to the problem item."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def read_cell(field: Field, value: object) -> Cell:
    """Return the canonical value; raise CellRefused with the reason in words.

    Whole numbers are accepted for floats, rounded like every decimal text. Floats are refused for ints even
    when they are whole: a client that sends 1.0 holds a float, and will send 1.5 one day.
    """
    if value is MISSING:
        raise CellRefused(
            "missing_field", f"field '{field.name}' is missing: give it {_EXPECTED[field.type]}"
        )
    if value is None:
        if not field.nullable:
            raise CellRefused(
                "null_value",
                f"field '{field.name}' is not nullable, got null: give it {_EXPECTED[field.type]}",
            )
        return None
    match field.type:
        case FieldType.INT:
            return _int(field, value)
        case FieldType.FLOAT:
            return _float(field, value)
        case FieldType.BOOL:
            return value if isinstance(value, bool) else _mismatch(field, value)
        case FieldType.STRING:
            return _text(field, value)
        case FieldType.TIMESTAMP:
            return _timestamp(field, value)


def shown(value: object) -> str:
    """Return the value as JSON, shortened; for values that JSON does not have, as Python writes them."""
    try:
        text = orjson.dumps(value).decode() if not isinstance(value, float) else repr(value)
    except (TypeError, ValueError):
        text = ascii(value) if not isinstance(value, int) or abs(value) < 10**_LONGEST else "a huge number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_EXPECTED = {
    FieldType.INT: "an int",
    FieldType.FLOAT: "a float",
    FieldType.BOOL: "true or false",
    FieldType.STRING: "a string",
    FieldType.TIMESTAMP: "a timestamp",
}


def _mismatch(field: Field, value: object, advice: str = "") -> Cell:
    raise CellRefused(
        "type_mismatch",
        f"field '{field.name}' expects {_EXPECTED[field.type]}, got {shown(value)}{advice}",
    )


def _int(field: Field, value: object) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _mismatch(field, value)
    # The JSON reader hands on whole numbers beyond 64 bits as floats, -2^63 - 1 even as -2^63.
    if not INT64_MIN <= value <= INT64_MAX or (isinstance(value, float) and abs(value) >= 2**63):
        raise CellRefused(
            "out_of_range",
            f"field '{field.name}' expects a 64-bit int, got {shown(value)}: "
            f"it must be between {INT64_MIN} and {INT64_MAX}",
        )
    if isinstance(value, float):
        advice = (
            f": write {int(value)}, without a decimal point" if value.is_integer() else ": round it first"
        )
        return _mismatch(field, value, advice)
    return value


def _float(field: Field, value: object) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _mismatch(field, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CellRefused(
            "not_finite",
            f"field '{field.name}' expects a finite float, got {shown(value)}: "
            + ("give null instead" if field.nullable else "leave the row out, or declare the field nullable"),
        )
    return number


def _text(field: Field, value: object) -> Cell:
    if not isinstance(value, str):
        return _mismatch(field, value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CellRefused(
            "invalid_text",
            f"field '{field.name}' expects text, got {shown(value)}, which has half a surrogate pair "
            f"at character {error.start}: send whole characters",
        ) from None
    return value


def _timestamp(field: Field, value: object) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | str | datetime):
        return _mismatch(field, value, ": write ISO 8601 text or an integer of microseconds since 1970")
    try:
        return read_instant(value)
    except ValueError as error:
        raise CellRefused(
            "invalid_timestamp", f"field '{field.name}' expects a timestamp, got {shown(value)}: {error}"
        ) from None
