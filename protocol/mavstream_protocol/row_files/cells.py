"""Cells of text as values: whole columns at once, and the cells that are none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mavstream_protocol.instants import parse_instant
from mavstream_protocol.row_files.reading import Reading
from mavstream_protocol.schema import FieldType

NULLS = pa.array(["", "#N/A", "#NA", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null", "-nan", "None"])
"""Cells without a value, except in columns of text."""
_UTC = pa.timestamp("us", "UTC")
_INT = r"^\s*[+-]?[0-9]{1,19}\s*$"
_FLOAT = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_TRUE = pa.array(["true", "1"])
_FALSE = pa.array(["false", "0"])
_UNIX = {"unix": 1e6, "unix_s": 1e6, "unix_ms": 1e3, "unix_us": 1.0, "unix_ns": 1e-3}


class Cells(NamedTuple):
    """The values of a column, null where a cell has none, and which cells should have one."""

    values: pa.Array
    bad: np.ndarray | None
    """Whether each cell is no value of the type; None if all are."""


def read_cells(type_: FieldType, texts: pa.Array, reading: Reading) -> Cells:
    """Return the values of a column of cells."""
    if type_ is FieldType.STRING:
        return Cells(texts, None)
    texts = pc.if_else(pc.is_in(texts, value_set=NULLS), pa.scalar(None, pa.string()), texts)
    if type_ is FieldType.TIMESTAMP:
        return _instants(texts, reading.time_format)
    if type_ is FieldType.BOOL:
        lower = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
        true = pc.is_in(lower, value_set=_TRUE)
        known = pc.or_(true, pc.is_in(lower, value_set=_FALSE))
        return _found(texts, pc.if_else(known, true, pa.scalar(None, pa.bool_())))
    if reading.decimal != ".":
        texts = pc.replace_substring(texts, reading.decimal, ".")
    return _numbers(texts, pa.int64() if type_ is FieldType.INT else pa.float64())


def _found(texts: pa.Array, values: pa.Array) -> Cells:
    """Return values of cells, of which those are bad that are null without an empty cell."""
    if values.null_count == texts.null_count:
        return Cells(values, None)
    return Cells(values, pc.and_(pc.is_valid(texts), pc.is_null(values)).to_numpy(zero_copy_only=False))


def _numbers(texts: pa.Array, kind: pa.DataType) -> Cells:
    try:
        return Cells(texts.cast(kind), None)
    except pa.ArrowInvalid:
        pass
    fits = pc.match_substring_regex(texts, _INT if pa.types.is_integer(kind) else _FLOAT)
    nothing = pa.scalar(None, pa.string())
    trimmed = pc.utf8_trim_whitespace(pc.if_else(fits, texts, nothing))
    try:
        return _found(texts, trimmed.cast(kind))
    except pa.ArrowInvalid:
        # A sign in front, or a number of 64 bits that overflows.
        return _found(texts, pa.array([_number(text, kind) for text in trimmed.to_pylist()], kind))


def _number(text: str | None, kind: pa.DataType) -> int | float | None:
    if text is None:
        return None
    if not pa.types.is_integer(kind):
        return float(text)
    return int(text) if -(1 << 63) <= int(text) < 1 << 63 else None


def _instants(texts: pa.Array, format_: str | None) -> Cells:
    if format_ is None:
        return _iso(texts)
    if format_ in _UNIX:
        numbers = _numbers(texts, pa.float64())
        # A second of these years has 10 digits, so that a float still tells microseconds apart.
        values = pc.round(pc.multiply(numbers.values, _UNIX[format_])).cast(pa.int64(), safe=False)
        return Cells(values.cast(_UTC), numbers.bad)
    if "%f" not in format_ and "%z" not in format_ and "%Z" not in format_:
        parsed = pc.strptime(pc.utf8_trim_whitespace(texts), format_, "us", error_is_null=True)
        return _found(texts, parsed.cast(_UTC))
    return _each(texts, lambda text: _strptime(text, format_))


def _iso(texts: pa.Array) -> Cells:
    for kind in (pa.int64(), _UTC, pa.timestamp("us")):
        try:
            return Cells(texts.cast(kind).cast(_UTC), None)
        except pa.ArrowInvalid:
            continue
    return _each(texts, _read_iso)


def _each(texts: pa.Array, read: Any) -> Cells:
    known: dict[str | None, int | None] = {None: None}
    for text in texts.unique().to_pylist():
        if text is not None:
            try:
                known[text] = read(text.strip())
            except ValueError:
                known[text] = None
    values = pa.array([known[text] for text in texts.to_pylist()], pa.int64())
    return _found(texts, values.cast(_UTC))


def _read_iso(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else parse_instant(text)


def _strptime(text: str, format_: str) -> int:
    found = datetime.strptime(text, format_)
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
