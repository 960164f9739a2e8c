"""Pair output: computes the rows that a join emits for pairs of matching rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_protocol.queries import OnError
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column, Ints
from mavstream_server.expressions import RowErrors, compile_expression, compile_predicate
from mavstream_server.operators.operator import ErrorPolicy, Operator


class PairOutput:
    """Applies the residual predicate to pairs and computes the columns of those that remain."""

    def __init__(
        self,
        where: Expression | None,
        compute: Sequence[tuple[str, Expression]],
        on_error: OnError,
        operator: Operator,
    ) -> None:
        self._where = None if where is None else compile_predicate(where)
        self._tested = sides(() if where is None else [where])
        self._compute = tuple((column, compile_expression(expression)) for column, expression in compute)
        self._read = sides(expression for _, expression in compute)
        self._errors = ErrorPolicy(on_error, operator)

    def rows(
        self,
        left: Batch,
        right: Batch,
        left_rows: Ints,
        right_rows: Ints,
        extra: Mapping[str, int] | None = None,
    ) -> tuple[Batch, Ints] | None:
        """Return the joined rows and the positions of their right rows, or None if no pair remains.

        A joined row has the later time and arrival of the two, and the position of the left one. `extra` are
        constant columns.
        """
        if self._where is not None:
            errors = RowErrors()
            columns = _gather(self._tested, left, right, left_rows, right_rows)
            kept = self._where(columns, len(left_rows), errors)
            if errors.first is not None:
                self._errors.record(errors)
            left_rows, right_rows = left_rows.take(kept), right_rows.take(kept)
        size = len(left_rows)
        if not size:
            return None
        errors = RowErrors()
        given = _gather(self._read, left, right, left_rows, right_rows)
        columns = {column: evaluate(given, size, errors) for column, evaluate in self._compute}
        if extra is not None:
            for name, value in extra.items():
                columns[name] = Column(np.full(size, value, dtype=np.int64))
        assert left.time is not None
        assert right.time is not None
        settled = Batch(
            columns,
            size,
            np.maximum(left.arrival.take(left_rows), right.arrival.take(right_rows)),
            time=np.maximum(left.time.take(left_rows), right.time.take(right_rows)),
            position=None if left.position is None else left.position.take(left_rows),
        )
        if errors.first is not None:
            settled = self._errors.settle(settled, errors, columns)
        if right.position is None:
            return settled, _NONE
        positions = right.position.take(right_rows)
        if settled.size < size:
            positions = positions[~errors.mask(size)]
        return settled, positions


_NONE: Ints = np.empty(0, dtype=np.int64)


Names = tuple[tuple[str, str], ...]
"""Names of columns of one side, each as expressions call it and as the side does."""


def sides(expressions: Iterable[Expression]) -> tuple[Names, Names]:
    """Return the columns of the left and of the right side that expressions read."""
    names = sorted({name for expression in expressions for name in references(expression)})
    return (
        tuple((name, name.removeprefix("l.")) for name in names if name.startswith("l.")),
        tuple((name, name.removeprefix("r.")) for name in names if name.startswith("r.")),
    )


def _gather(
    names: tuple[Names, Names], left: Batch, right: Batch, left_rows: Ints, right_rows: Ints
) -> dict[str, Column]:
    columns = {name: left.columns[own].take(left_rows) for name, own in names[0]}
    for name, own in names[1]:
        columns[name] = right.columns[own].take(right_rows)
    return columns
