"""CAST and TRY_CAST between all pairs of types that can be converted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mavstream_protocol.expressions.conversions import (
    bool_of_text,
    float_of_text,
    int_of_text,
    text_of_float,
    text_of_timestamp,
    timestamp_of_text,
)
from mavstream_protocol.expressions.typed import Call
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Array, Column, Mask, both_valid
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.expressions.errors import FloatFlags, RowErrors
from mavstream_server.expressions.operands import Columns, Evaluator, Operand, evaluator, result, unary
from mavstream_server.expressions.text_order import looked_up

INT, FLOAT, BOOL, STRING, TIMESTAMP = (
    FieldType.INT,
    FieldType.FLOAT,
    FieldType.BOOL,
    FieldType.STRING,
    FieldType.TIMESTAMP,
)

_READERS: dict[FieldType, Callable[[str], Any]] = {
    INT: int_of_text,
    FLOAT: float_of_text,
    BOOL: bool_of_text,
    TIMESTAMP: timestamp_of_text,
}
_WRITERS: dict[FieldType, Callable[[Any], str]] = {
    INT: str,
    FLOAT: text_of_float,
    TIMESTAMP: text_of_timestamp,
}
# Exactly representable, unlike the largest integer itself.
_TOO_LARGE = 2.0**63


def cast(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile CAST, which fails for values that cannot be converted, or TRY_CAST, which gives null."""
    source, target = operands[0].type, call.type
    inner = evaluator(operands[0])
    if source is target:
        return operands[0]
    if source is STRING:
        return result(call, _from_text(inner, target, call.function == "try_cast"), operands, fails=True)
    if target is STRING:
        return result(call, _bool_to_text(inner) if source is BOOL else _to_text(inner, source), operands)
    if target is BOOL:
        return unary(call, operands, lambda values: np.not_equal(values, 0))
    if source is FLOAT:
        return result(call, _float_to_int(inner, call.function == "try_cast"), operands, fails=True)
    dtype = DTYPES[target]
    return unary(call, operands, lambda values: values.astype(dtype))


def _unconverted(
    values: Array, valid: Mask | None, failed: Mask, errors: RowErrors, message: str | None
) -> Column:
    """Return null where a conversion failed; report the rows as errors if a message is given."""
    if valid is not None:
        failed = failed & valid
    if message is not None:
        errors.add(failed, message)
    return Column(values, both_valid(valid, ~failed))


def _from_text(inner: Evaluator, target: FieldType, failsafe: bool) -> Evaluator:
    read = _READERS[target]
    table_type = np.dtype([("value", DTYPES[target]), ("failed", np.bool_)])
    message = None if failsafe else f"a string is not a {target}"

    def compute(texts: list[str]) -> Array:
        values = [read(text) for text in texts]
        return np.array([(value or 0, value is None) for value in values], dtype=table_type)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        assert column.dictionary is not None
        table: Array = column.dictionary.memo(("cast", target), compute)
        values = looked_up(column, table["value"])
        failures = table["failed"]
        if not failures.any():
            return Column(values, column.valid)
        return _unconverted(values, column.valid, looked_up(column, failures), errors, message)

    return evaluate


def _float_to_int(inner: Evaluator, failsafe: bool) -> Evaluator:
    message = None if failsafe else "a float is beyond the 64 bits of an int"

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        whole = np.rint(column.values)
        fits = (whole >= -_TOO_LARGE) & (whole < _TOO_LARGE)
        if fits.all():
            return Column(whole.astype(np.int64), column.valid)
        values = np.where(fits, whole, 0).astype(np.int64)
        return _unconverted(values, column.valid, ~fits, errors, message)

    return evaluate


def _bool_to_text(inner: Evaluator) -> Evaluator:
    texts = Dictionary(["false", "true"])

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        return Column(column.values.astype(np.int32), column.valid, texts)

    return evaluate


def _to_text(inner: Evaluator, source: FieldType) -> Evaluator:
    """Convert each distinct value of the batch once."""
    write = _WRITERS[source]

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        values = column.values
        if column.valid is not None:
            values = np.where(column.valid, values, 0)
        # Floats are distinguished by their bits: 0.0 and -0.0 are equal but have different texts.
        bits, codes = np.unique(np.ascontiguousarray(values).view(np.int64), return_inverse=True)
        texts = Dictionary([write(value) for value in bits.view(values.dtype).tolist()])
        return Column(codes.astype(np.int32), column.valid, texts)

    return evaluate
