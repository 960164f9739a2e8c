"""AND, OR, NOT and the tests for null and truth, in three-valued logic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Mask
from mavstream_server.expressions.errors import FloatFlags, RowErrors, without
from mavstream_server.expressions.operands import (
    Columns,
    Constant,
    Evaluator,
    Operand,
    evaluator,
    result,
    unary,
    written_out,
)

Combine = Callable[[Column, Column], Column]


def _and(a: Column, b: Column) -> Column:
    """False where either is false, else null where either is null."""
    values = a.values & b.values
    if a.valid is None and b.valid is None:
        return Column(values)
    if a.valid is None:
        assert b.valid is not None
        return Column(values, b.valid | ~a.values)
    if b.valid is None:
        return Column(values, a.valid | ~b.values)
    return Column(values, (a.valid & b.valid) | (a.valid & ~a.values) | (b.valid & ~b.values))


def _or(a: Column, b: Column) -> Column:
    """True where either is true, else null where either is null."""
    values = a.values | b.values
    if a.valid is None and b.valid is None:
        return Column(values)
    if a.valid is None:
        assert b.valid is not None
        return Column(values, b.valid | a.values)
    if b.valid is None:
        return Column(values, a.valid | b.values)
    return Column(values, (a.valid & b.valid) | (a.valid & a.values) | (b.valid & b.values))


def connector(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile AND or OR of any number of operands."""
    return connect(call, operands)


def connect(call: Call, operands: Sequence[Operand]) -> Operand:
    """Compile AND or OR; constants that decide the result or do not affect it are folded."""
    conjunction = call.function != "or"
    if any(isinstance(o, Constant) and o.value is (not conjunction) for o in operands):
        return Constant(not conjunction, FieldType.BOOL)
    kept = [o for o in operands if not (isinstance(o, Constant) and o.value is conjunction)]
    if not kept:
        return Constant(conjunction, FieldType.BOOL)
    if len(kept) == 1:
        return kept[0]
    combine = _and if conjunction else _or
    vectors = [written_out(operand) for operand in kept]
    inner = [vector.evaluate for vector in vectors]
    if any(vector.fallible for vector in vectors):
        return result(call, _forgiving(inner, combine), vectors)
    if len(inner) == 2:
        first, second = inner
        return result(
            call,
            lambda columns, size, errors: combine(
                first(columns, size, errors), second(columns, size, errors)
            ),
            vectors,
        )
    return result(call, _chained(inner, combine), vectors)


def _chained(inner: list[Evaluator], combine: Combine) -> Evaluator:
    first, *rest = inner

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = first(columns, size, errors)
        for operand in rest:
            column = combine(column, operand(columns, size, errors))
        return column

    return evaluate


def _forgiving(inner: list[Evaluator], combine: Combine) -> Evaluator:
    """Evaluate all sides; errors of one side do not count in rows that another side decides."""

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        whole: Column | None = None
        failures: list[RowErrors] = []
        for operand in inner:
            own = RowErrors()
            column = operand(columns, size, own)
            if own.first is not None:
                column = without(column, own.mask(size))
                failures.append(own)
            whole = column if whole is None else combine(whole, column)
        assert whole is not None
        if failures and whole.valid is not None:
            undecided = ~whole.valid
            for own in failures:
                errors.add_from(own, undecided)
        return whole

    return evaluate


def negation(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile NOT."""
    return unary(call, operands, np.logical_not)


def truth(column: Column) -> Mask:
    """Return where a bool column is true, null counting as false."""
    return column.values if column.valid is None else column.values & column.valid


def is_null(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile IS NULL."""
    inner = evaluator(operands[0])

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        valid = inner(columns, size, errors).valid
        return Column(np.zeros(size, dtype=np.bool_) if valid is None else ~valid)

    return result(call, evaluate, operands)


def is_truth(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile IS TRUE and IS FALSE."""
    inner = evaluator(operands[0])
    wanted = call.function == "is_true"

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        if wanted:
            return Column(truth(column))
        return Column(truth(Column(~column.values, column.valid)))

    return result(call, evaluate, operands)
