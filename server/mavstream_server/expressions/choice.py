"""Choices between values: CASE, COALESCE, NULLIF, least() and greatest()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mavstream_protocol.expressions.typed import Call
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Column, Mask, both_valid
from mavstream_server.expressions.comparison import compare
from mavstream_server.expressions.errors import FloatFlags, RowErrors
from mavstream_server.expressions.logic import truth
from mavstream_server.expressions.operands import (
    Columns,
    Constant,
    Operand,
    Slot,
    Vector,
    evaluator,
    result,
    written_out,
)
from mavstream_server.expressions.text_pool import TextPool


class _Output:
    """A column that is filled in steps; rows that are not filled are null."""

    __slots__ = ("_valid", "_values", "pool")

    def __init__(self, type_: FieldType, size: int, pool: TextPool | None) -> None:
        self._values = np.zeros(size, dtype=DTYPES[type_])
        self._valid = np.zeros(size, dtype=np.bool_)
        self.pool = pool

    def fill(self, value: Column | Constant, rows: Mask) -> None:
        """Fill rows from a column or a constant."""
        if isinstance(value, Constant):
            if value.value is None:
                return
            scalar: Any = self.pool.code(value.value) if self.pool else value.value
            np.copyto(self._values, scalar, where=rows, casting="unsafe")
            self._valid |= rows
        else:
            values = self.pool.codes(value) if self.pool else value.values
            np.copyto(self._values, values, where=rows)
            self._valid |= rows if value.valid is None else rows & value.valid

    def column(self) -> Column:
        """Return the filled column."""
        valid = None if self._valid.all() else self._valid
        return Column(self._values, valid, self.pool.dictionary if self.pool else None)


def case(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile CASE WHEN; errors count only in the branches that a row takes."""
    return _case(call, operands[:-1:2], (*operands[1::2], operands[-1]), operands)


def switch(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile CASE x WHEN; x is evaluated once."""
    slot = Slot(operands[0])
    conditions = [compare("=", slot.operand, choice) for choice in operands[1:-1:2]]
    inner = evaluator(_case(call, conditions, (*operands[2::2], operands[-1]), operands))

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        slot.column = slot.source(columns, size, errors)
        column = inner(columns, size, errors)
        slot.column = None
        return column

    return result(call, evaluate, operands)


def _case(
    call: Call, conditions: Sequence[Operand], values: Sequence[Operand], operands: Sequence[Operand]
) -> Operand:
    tests = [evaluator(condition) for condition in conditions]
    pools = _pools(call.type, values)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        branches = [_branch(value, columns, size) for value in values]
        output = _Output(call.type, size, _pool(pools, branches))
        pending = np.ones(size, dtype=np.bool_)
        for test, (value, inner) in zip(tests, branches, strict=False):
            own = RowErrors()
            taken = truth(test(columns, size, own)) & pending
            errors.add_from(own, pending)
            output.fill(value, taken)
            errors.add_from(inner, taken)
            pending &= ~taken
        value, inner = branches[-1]
        output.fill(value, pending)
        errors.add_from(inner, pending)
        return output.column()

    return result(call, evaluate, operands)


def coalesce(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile COALESCE; errors after the first value that is not null do not count."""
    kept = _reachable(operands)
    if len(kept) == 1:
        return kept[0]
    pools = _pools(call.type, kept)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        first = evaluate_first(columns, size, errors)
        if first.valid is None:
            return first
        branches = [(first, RowErrors()), *(_branch(value, columns, size) for value in kept[1:])]
        output = _Output(call.type, size, _pool(pools, branches))
        pending = np.ones(size, dtype=np.bool_)
        for value, inner in branches:
            errors.add_from(inner, pending)
            output.fill(value, pending)
            if isinstance(value, Column):
                pending &= False if value.valid is None else ~value.valid
        return output.column()

    evaluate_first = evaluator(kept[0])
    return result(call, evaluate, kept)


def _reachable(operands: Sequence[Operand]) -> list[Operand]:
    """Return the operands without constant nulls and without those after a constant."""
    kept: list[Operand] = []
    for operand in operands:
        if isinstance(operand, Vector):
            kept.append(operand)
        elif operand.value is not None:
            kept.append(operand)
            break
    return kept


def nullif(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile NULLIF: null where both operands are equal, else the first operand."""
    slot = Slot(operands[0])
    equal = evaluator(compare("=", slot.operand, operands[1]))

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = slot.column = slot.source(columns, size, errors)
        same = truth(equal(columns, size, errors))
        slot.column = None
        if not same.any():
            return column
        return Column(column.values, both_valid(column.valid, ~same), column.dictionary)

    return result(call, evaluate, operands)


def extreme(call: Call, operands: Sequence[Operand], _flags: FloatFlags) -> Operand:
    """Compile least() and greatest() of types other than string; nulls are ignored."""
    kernel = np.minimum if call.function == "least" else np.maximum
    inner = [written_out(o).evaluate for o in operands if not (isinstance(o, Constant) and o.value is None)]

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        best = inner[0](columns, size, errors)
        for other in inner[1:]:
            column = other(columns, size, errors)
            if best.valid is None and column.valid is None:
                best = Column(kernel(best.values, column.values))
                continue
            a = np.ones(size, dtype=np.bool_) if best.valid is None else best.valid
            b = np.ones(size, dtype=np.bool_) if column.valid is None else column.valid
            chosen = np.where(
                a & b, kernel(best.values, column.values), np.where(a, best.values, column.values)
            )
            best = Column(chosen, a | b)
        return best

    # Guarded, because the undefined values of null rows are compared too.
    return result(call, evaluate, operands, fails=True)


def _branch(value: Operand, columns: Columns, size: int) -> tuple[Column | Constant, RowErrors]:
    own = RowErrors()
    return (value if isinstance(value, Constant) else value.evaluate(columns, size, own)), own


def _pools(type_: FieldType, values: Sequence[Operand]) -> TextPool | None:
    """Return the pool of the constant texts if the result is a string."""
    if type_ is not FieldType.STRING:
        return None
    return TextPool(
        [value.value for value in values if isinstance(value, Constant) and value.value is not None]
    )


def _pool(
    constants: TextPool | None, branches: Sequence[tuple[Column | Constant, RowErrors]]
) -> TextPool | None:
    if constants is None:
        return None
    return constants.joined_by([value for value, _ in branches if isinstance(value, Column)])
