"""Compiles text functions: evaluated once per text of one column, else once per combination of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mavstream_protocol.expressions.typed import Call, Expression
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Array, Column, Mask, both_valid
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.expressions.choice import coalesce
from mavstream_server.expressions.combinations import distinct_rows
from mavstream_server.expressions.errors import FloatFlags, RowErrors
from mavstream_server.expressions.operands import (
    Columns,
    Constant,
    Operand,
    Vector,
    always_null,
    evaluator,
    null_in,
    result,
)
from mavstream_server.expressions.text_order import looked_up
from mavstream_server.expressions.text_pool import derived_column
from mavstream_server.expressions.texts import TEXT_FUNCTIONS, TextFunction


def text_function(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile a function listed in `TEXT_FUNCTIONS`."""
    known = TEXT_FUNCTIONS[call.function]
    if call.function == "concat":
        operands = [
            _without_null(operand, part) for operand, part in zip(operands, call.arguments, strict=True)
        ]
    if known.strict and null_in(operands):
        return always_null(call, operands)
    vectors = [operand for operand in operands if isinstance(operand, Vector)]
    if known.strict and len(vectors) == 1 and vectors[0].type is FieldType.STRING:
        return _once_per_text(call, operands, known)
    return _once_per_combination(call, operands, known)


def _without_null(operand: Operand, part: Expression) -> Operand:
    """Return an operand of concat() with the empty text in place of null."""
    if not part.nullable:
        return operand
    empty = Constant("", FieldType.STRING)
    if isinstance(operand, Constant):
        return empty if operand.value is None else operand
    return coalesce(Call("coalesce", (), FieldType.STRING, False), (operand, empty), FloatFlags())


def _once_per_text(call: Call, operands: Sequence[Operand], known: TextFunction) -> Operand:
    place = next(index for index, operand in enumerate(operands) if isinstance(operand, Vector))
    constants = [operand.value if isinstance(operand, Constant) else None for operand in operands]
    before, after = constants[:place], constants[place + 1 :]
    key = (call.function, tuple(before), tuple(after))
    function = known.function
    inner = evaluator(operands[place])

    def apply(text: str) -> Any:
        return function(*before, text, *after)

    if known.fails is not None:
        return _with_failures(call, operands, known.fails, key, apply)
    if call.type is FieldType.STRING:
        return result(
            call,
            lambda columns, size, errors: derived_column(inner(columns, size, errors), key, apply),
            operands,
        )
    dtype = DTYPES[call.type]

    def compute(texts: list[str]) -> Array:
        return np.array([apply(text) for text in texts], dtype=dtype)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        assert column.dictionary is not None
        return Column(looked_up(column, column.dictionary.memo(key, compute)), column.valid)

    return result(call, evaluate, operands)


def _with_failures(
    call: Call, operands: Sequence[Operand], message: str, key: object, apply: Callable[[str], Any]
) -> Operand:
    """Evaluate a function that can fail once per text; failures are in a separate table."""
    (inner,) = (operand.evaluate for operand in operands if isinstance(operand, Vector))
    dtype = DTYPES[call.type]

    def failures(texts: list[str]) -> Array:
        return np.array([apply(text) is None for text in texts], dtype=np.bool_)

    def values(texts: list[str]) -> Array:
        return np.array([apply(text) or 0 for text in texts], dtype=dtype)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        assert column.dictionary is not None
        failed = column.dictionary.memo(("fails", key), failures)
        if call.type is FieldType.STRING:
            changed = derived_column(column, key, lambda text: apply(text) or "")
        else:
            changed = Column(looked_up(column, column.dictionary.memo(("values", key), values)), column.valid)
        return _reported(changed, looked_up(column, failed), errors, message) if failed.any() else changed

    return result(call, evaluate, operands, fails=True)


def _reported(column: Column, failed: Mask, errors: RowErrors, message: str) -> Column:
    if column.valid is not None:
        failed = failed & column.valid
    errors.add(failed, message)
    return Column(column.values, both_valid(column.valid, ~failed), column.dictionary)


def _once_per_combination(call: Call, operands: Sequence[Operand], known: TextFunction) -> Operand:
    inner = [evaluator(operand) for operand in operands]
    types = [operand.type for operand in operands]
    function = known.function

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        arguments = [operand(columns, size, errors) for operand in inner]
        rows: Array | None = None
        if known.strict:
            valid: Mask | None = None
            for argument in arguments:
                valid = both_valid(valid, argument.valid)
            rows = None if valid is None else valid.nonzero()[0]
        combinations, inverse = distinct_rows(arguments, types, rows)
        found = _column(call.type, [function(*values) for values in combinations], inverse, rows, size)
        if known.fails is not None and found.valid is not None:
            failed = ~found.valid if rows is None else ~found.valid & _mask_of(rows, size)
            errors.add(failed, known.fails)
        return found

    return result(call, evaluate, operands, fails=known.fails is not None)


def _mask_of(rows: Array, size: int) -> Mask:
    """Return the mask of the given row numbers."""
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask


def _column(type_: FieldType, results: list[Any], inverse: Array, rows: Array | None, size: int) -> Column:
    """Expand the results of combinations to their rows; None is null."""
    dictionary: Dictionary | None = None
    missing = np.array([value is None for value in results], dtype=np.bool_)
    if type_ is FieldType.STRING:
        dictionary = Dictionary()
        plain: list[Any] = [0 if value is None else dictionary.add(value) for value in results]
    else:
        plain = [0 if value is None else value for value in results]
    table = np.array(plain, dtype=DTYPES[type_])
    if rows is None:
        valid = ~missing.take(inverse) if missing.any() else None
        return Column(table.take(inverse), valid, dictionary)
    values = np.zeros(size, dtype=DTYPES[type_])
    values[rows] = table.take(inverse)
    valid = np.zeros(size, dtype=np.bool_)
    valid[rows] = ~missing.take(inverse)
    return Column(values, valid, dictionary)
