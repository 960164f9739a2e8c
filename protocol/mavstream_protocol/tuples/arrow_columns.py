"""Casts Arrow columns to the canonical types if every value is preserved, otherwise records errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from mavstream_protocol.schema import Field, FieldType
from mavstream_protocol.tuples.arrow_types import is_text
from mavstream_protocol.tuples.canonical import ARROW_TYPES
from mavstream_protocol.tuples.columns import check_cell, instants_fit, numbers_of, read_column
from mavstream_protocol.tuples.findings import MOST_TOLD, Findings

_SEND = MappingProxyType(
    {
        FieldType.INT: "int64 or another integer type",
        FieldType.FLOAT: "float64, float32 or integers",
        FieldType.BOOL: "bool",
        FieldType.STRING: "string, large_string, string_view or a dictionary of them",
        FieldType.TIMESTAMP: "timestamp, int64 of microseconds or ISO 8601 strings",
    }
)
_TICKS_PER_SECOND = MappingProxyType({"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9})


def cast_column(field: Field, column: pa.Array, findings: Findings) -> pa.Array | None:
    """Return the canonical array, or None after recording the errors in `findings`."""
    array = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if not _castable(field.type, array.type):
        findings.in_column(
            field.name,
            "type_mismatch",
            f"field '{field.name}' is of type {field.type} and the Arrow column is {column.type}: "
            f"send {_SEND[field.type]}",
        )
        return None
    if array.null_count and not field.nullable:
        _tell_nulls(field, array, findings)
        return None
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), ARROW_TYPES[field.type])
    return _CASTS[field.type](field, array, findings)


def _castable(wanted: FieldType, kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    match wanted:
        case FieldType.INT:
            return bool(pa.types.is_integer(kind))
        case FieldType.FLOAT:
            return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
        case FieldType.BOOL:
            return bool(pa.types.is_boolean(kind))
        case FieldType.STRING:
            return is_text(kind)
        case FieldType.TIMESTAMP:
            return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or is_text(kind))


def _tell_nulls(field: Field, array: pa.Array, findings: Findings) -> None:
    absent = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
    for row in absent[:MOST_TOLD].tolist():
        check_cell(field, row, None, findings)


def _to_int(field: Field, array: pa.Array, findings: Findings) -> pa.Array | None:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        # Only uint64 can overflow; as Python numbers the values get the words that JSON gets.
        return read_column(field, array.to_pylist(), findings)


def _to_float(field: Field, array: pa.Array, findings: Findings) -> pa.Array | None:
    if pa.types.is_integer(array.type):
        return _int_to_float(field, array, findings)
    floats = array.cast(pa.float64())
    if np.isfinite(numbers_of(floats)).all():
        return floats
    return read_column(field, floats.to_pylist(), findings)


def _int_to_float(field: Field, array: pa.Array, findings: Findings) -> pa.Array | None:
    try:
        return array.cast(pa.float64())
    except pa.ArrowInvalid:
        values = array.to_pylist()
    # Arrow refuses everything beyond 2^53, though many of these numbers are floats exactly.
    inexact = (row for row, value in enumerate(values) if value is not None and int(float(value)) != value)
    wrong = list(islice(inexact, MOST_TOLD))
    for row in wrong:
        findings.in_row(
            row,
            field.name,
            "inexact",
            f"field '{field.name}' expects a float, got the integer {values[row]}, "
            "which no float holds exactly: send float64",
        )
    return None if wrong else pa.array([None if value is None else float(value) for value in values])


def _to_bool(field: Field, array: pa.Array, findings: Findings) -> pa.Array | None:
    return array


def _to_string(field: Field, array: pa.Array, findings: Findings) -> pa.Array | None:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        findings.in_column(field.name, "too_much_text", f"column '{field.name}' is too long: {error}")
        return None


def _to_timestamp(field: Field, array: pa.Array, findings: Findings) -> pa.Array | None:
    if not pa.types.is_timestamp(array.type):
        return read_column(field, array.to_pylist(), findings)
    unit = array.type.unit
    try:
        # A time zone only affects how an instant is shown, so it is dropped; without a zone, times are UTC.
        instants = array.view(pa.timestamp(unit)).cast(pa.timestamp("us")).view(pa.int64())
    except pa.ArrowInvalid:
        _explain_ticks(field, array.view(pa.int64()), unit, findings)
        return None
    if not instants_fit(instants):
        return read_column(field, instants.to_pylist(), findings)
    return instants.view(ARROW_TYPES[FieldType.TIMESTAMP])


def _explain_ticks(field: Field, ticks: pa.Array, unit: str, findings: Findings) -> None:
    """Record which ticks lose precision in microseconds or lie outside the supported years."""
    for row, tick in enumerate(ticks.to_pylist()):
        if tick is None:
            continue
        instant, rest = divmod(tick * 10**6, _TICKS_PER_SECOND[unit])
        if rest:
            findings.in_row(
                row,
                field.name,
                "invalid_timestamp",
                f"field '{field.name}' expects microseconds, got {tick} {unit}, which is finer: "
                "round it first",
            )
        else:
            check_cell(field, row, instant, findings)
        if len(findings) >= MOST_TOLD:
            return


_CASTS: MappingProxyType[FieldType, Callable[[Field, pa.Array, Findings], pa.Array | None]] = (
    MappingProxyType(
        {
            FieldType.INT: _to_int,
            FieldType.FLOAT: _to_float,
            FieldType.BOOL: _to_bool,
            FieldType.STRING: _to_string,
            FieldType.TIMESTAMP: _to_timestamp,
        }
    )
)
