"""Operands: the compiled parts of an expression, and builders for simple functions of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Array, Column, both_valid
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.expressions.errors import FloatFlags, RowErrors

Columns = Mapping[str, Column]
Evaluator = Callable[[Columns, int, RowErrors], Column]
"""Takes columns by name, the number of rows and the row errors; returns a column of that many rows."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant operand; its value is None for null."""

    value: Any
    type: FieldType


@dataclass(frozen=True, slots=True)
class Vector:
    """An operand with a value per row; if it is not `fallible`, `evaluate` never reports an error."""

    evaluate: Evaluator
    type: FieldType
    fallible: bool = False


Operand = Constant | Vector
Builder = Callable[[Call, Sequence[Operand], FloatFlags], Operand]
"""Compiles a call of one function, of whose operands at least one is a Vector."""


def result(call: Call, evaluate: Evaluator, operands: Sequence[Operand], *, fails: bool = False) -> Vector:
    """Return the operand of a call; it is fallible if the function or an operand is."""
    return Vector(evaluate, call.type, fails or any(isinstance(o, Vector) and o.fallible for o in operands))


def null_in(operands: Sequence[Operand]) -> bool:
    """Return whether an operand is a constant null."""
    return any(isinstance(operand, Constant) and operand.value is None for operand in operands)


def evaluator(operand: Operand) -> Evaluator:
    """Return the evaluator of an operand; constants are expanded to a column."""
    if isinstance(operand, Vector):
        return operand.evaluate
    dtype = DTYPES[operand.type]
    if operand.value is None:
        dictionary = Dictionary() if operand.type is FieldType.STRING else None
        return lambda _columns, size, _errors: Column(
            np.zeros(size, dtype=dtype), np.zeros(size, dtype=np.bool_), dictionary
        )
    if operand.type is FieldType.STRING:
        texts = Dictionary([operand.value])
        return lambda _columns, size, _errors: Column(np.zeros(size, dtype=dtype), None, texts)
    value = operand.value
    return lambda _columns, size, _errors: Column(np.full(size, value, dtype=dtype))


def always_null(call: Call, operands: Sequence[Operand]) -> Operand:
    """Return null for a strict function of a constant null.

    As in DuckDB, operands before the null are evaluated and can fail, operands after it are not.
    """
    null = Constant(None, call.type)
    before = takewhile(lambda operand: not null_in([operand]), operands)
    parts = [operand.evaluate for operand in before if isinstance(operand, Vector) and operand.fallible]
    if not parts:
        return null
    nothing = evaluator(null)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        for part in parts:
            part(columns, size, errors)
        return nothing(columns, size, errors)

    return Vector(evaluate, call.type, True)


def written_out(operand: Operand) -> Vector:
    """Return an operand as a Vector."""
    return operand if isinstance(operand, Vector) else Vector(evaluator(operand), operand.type)


class Slot:
    """An operand that is evaluated once and used by several parts of a function."""

    __slots__ = ("column", "operand", "source")

    def __init__(self, source: Operand) -> None:
        self.source = written_out(source).evaluate
        self.column: Column | None = None
        self.operand: Operand = source if isinstance(source, Constant) else Vector(self._get, source.type)

    def _get(self, columns: Columns, size: int, errors: RowErrors) -> Column:
        assert self.column is not None
        return self.column


def unary(
    call: Call, operands: Sequence[Operand], kernel: Callable[[Array], Array], *, guarded: bool = False
) -> Operand:
    """Apply an array function that never fails; null gives null.

    `guarded` functions may set floating-point flags for the undefined values of null rows.
    """
    inner = evaluator(operands[0])

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        return Column(kernel(column.values), column.valid)

    return result(call, evaluate, operands, fails=guarded)


def binary(call: Call, operands: Sequence[Operand], kernel: Callable[[Any, Any], Array]) -> Operand:
    """Apply a function of two arrays that never fails; null gives null, a constant stays a scalar."""
    left, right = operands
    if null_in(operands):
        return always_null(call, operands)
    evaluate: Evaluator
    if isinstance(right, Constant):
        evaluate = _with_scalar(evaluator(left), right.value, kernel)
    elif isinstance(left, Constant):
        evaluate = _with_scalar(evaluator(right), left.value, lambda values, scalar: kernel(scalar, values))
    else:
        first, second = left.evaluate, right.evaluate

        def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
            a = first(columns, size, errors)
            b = second(columns, size, errors)
            return Column(kernel(a.values, b.values), both_valid(a.valid, b.valid))

    return result(call, evaluate, operands)


def _with_scalar(inner: Evaluator, scalar: Any, kernel: Callable[[Any, Any], Array]) -> Evaluator:
    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        return Column(kernel(column.values, scalar), column.valid)

    return evaluate


Checked = Callable[[Any, Any, "Array | None", RowErrors], Column]


def checked(call: Call, operands: Sequence[Operand], kernel: Checked) -> Operand:
    """Apply a function of two arrays that can fail; it gets values, validity and the row errors."""
    left, right = operands
    if null_in(operands):
        return always_null(call, operands)
    evaluate: Evaluator
    if isinstance(right, Constant):
        inner, scalar = evaluator(left), right.value

        def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
            column = inner(columns, size, errors)
            return kernel(column.values, scalar, column.valid, errors)

    elif isinstance(left, Constant):
        inner, scalar = right.evaluate, left.value

        def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
            column = inner(columns, size, errors)
            return kernel(scalar, column.values, column.valid, errors)

    else:
        first, second = left.evaluate, right.evaluate

        def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
            a = first(columns, size, errors)
            b = second(columns, size, errors)
            return kernel(a.values, b.values, both_valid(a.valid, b.valid), errors)

    return result(call, evaluate, operands, fails=True)


def failing(values: Array, valid: Array | None, failed: Array, errors: RowErrors, message: str) -> Column:
    """Return a column with null in the failed rows, which are reported unless they were null before.

    `values` is modified: failed rows are set to zero, so that no infinity is passed on.
    """
    values[failed] = 0
    if valid is not None:
        failed = failed & valid
    errors.add(failed, message)
    return Column(values, both_valid(valid, ~failed))
