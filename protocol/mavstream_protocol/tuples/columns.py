"""Converts columns of Python values, as a JSON reader returns them, to and from canonical Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType, NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT
from mavstream_protocol.schema import Field, FieldType
from mavstream_protocol.tuples.canonical import ARROW_TYPES
from mavstream_protocol.tuples.cells import Cell, CellRefused, read_cell
from mavstream_protocol.tuples.findings import MOST_TOLD, Findings
from mavstream_protocol.tuples.instant_columns import format_instants, parse_instants

# Arrow silently accepts 1.5 for an int and true for a float, so value types are checked first. For bool and
# string it is strict about all values of a JSON reader, and a check costs 20 ns per value.
_KINDS: MappingProxyType[FieldType, frozenset[type]] = MappingProxyType(
    {
        FieldType.INT: frozenset({int, NoneType}),
        FieldType.FLOAT: frozenset({int, float, NoneType}),
        FieldType.TIMESTAMP: frozenset({int, str, NoneType}),
    }
)


def read_column(field: Field, values: Sequence[object], findings: Findings) -> pa.Array | None:
    """Return the canonical array, or None after recording in `findings` which rows are invalid and why."""
    array = _at_once(field, values)
    return array if array is not None else _one_by_one(field, values, findings)


def write_column(array: pa.Array) -> list[Any]:
    """Return the values for JSON: null as None, timestamps as ISO 8601 text."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        return _with_nulls(array, format_instants(numbers_of(array.view(pa.int64()))))
    if pa.types.is_string(array.type):
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    return _with_nulls(array, numbers_of(array).tolist())


def _at_once(field: Field, values: Sequence[object]) -> pa.Array | None:
    """Return the array if the fast path can verify that every value is valid; None means undecided."""
    kinds = set(map(type, values)) if field.type in _KINDS else set()
    if not kinds <= _KINDS.get(field.type, kinds):
        return None
    try:
        if field.type is FieldType.TIMESTAMP:
            array = _timestamps(kinds - {NoneType}, values)
        else:
            array = pa.array(values, ARROW_TYPES[field.type])
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    if array is None or (array.null_count and not field.nullable):
        return None
    if field.type is FieldType.FLOAT and not np.isfinite(numbers_of(array)).all():
        return None
    return array


def _timestamps(kinds: set[type], values: Sequence[Any]) -> pa.Array | None:
    if kinds == {str}:
        return _timestamps_from_text(values)
    if kinds == {int, str}:
        return None
    array = pa.array(values, pa.int64())
    return array.view(ARROW_TYPES[FieldType.TIMESTAMP]) if instants_fit(array) else None


def _timestamps_from_text(values: Sequence[str | None]) -> pa.Array | None:
    texts = [value for value in values if value is not None]
    instants = parse_instants(texts)
    if instants is None:
        return None
    if len(texts) == len(values):
        return pa.array(instants).view(ARROW_TYPES[FieldType.TIMESTAMP])
    absent = np.fromiter((value is None for value in values), bool, len(values))
    spread = np.zeros(len(values), np.int64)
    spread[~absent] = instants
    return pa.array(spread, mask=absent).view(ARROW_TYPES[FieldType.TIMESTAMP])


def instants_fit(array: pa.Array) -> bool:
    """Return whether all microseconds lie in the supported years."""
    numbers = numbers_of(array)
    return not len(numbers) or bool(numbers.min() >= FIRST_INSTANT and numbers.max() <= LAST_INSTANT)


def check_cell(field: Field, row: int, value: object, findings: Findings) -> Cell:
    """Return the canonical value, or None after recording in `findings` why there is none."""
    try:
        return read_cell(field, value)
    except CellRefused as refused:
        findings.in_row(row, field.name, refused.code, refused.detail)
        return None


def _one_by_one(field: Field, values: Sequence[object], findings: Findings) -> pa.Array | None:
    cells: list[Cell] = []
    before = len(findings)
    for row, value in enumerate(values):
        cells.append(check_cell(field, row, value, findings))
        # The first findings of the frame may all be in one column, so each column collects up to the limit.
        if len(findings) - before == MOST_TOLD:
            break
    return None if len(findings) > before else pa.array(cells, ARROW_TYPES[field.type])


def numbers_of(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return the values as numpy; nulls as zero, so that integers stay exact."""
    filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    numbers: np.ndarray[Any, Any] = filled.to_numpy(zero_copy_only=False)
    return numbers


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if array.null_count:
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[row] = None
    return values
