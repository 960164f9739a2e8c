"""Project: emits one row per input row, with computed columns."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError
from mavstream_server.columns.batch import Batch
from mavstream_server.expressions import RowErrors, compile_expression
from mavstream_server.operators.operator import ErrorPolicy, Operator


class Project(Operator):
    """Computes the columns that downstream operators read."""

    kind = "project"

    def __init__(self, name: str, compute: Sequence[tuple[str, Expression]], on_error: OnError) -> None:
        super().__init__(name)
        self._compute = tuple((column, compile_expression(expression)) for column, expression in compute)
        self._errors = ErrorPolicy(on_error, self)

    def process(self, port: int, batch: Batch) -> None:
        """Emit the rows with their computed columns."""
        if batch.size:
            errors = RowErrors()
            given, size = batch.columns, batch.size
            columns = {column: evaluate(given, size, errors) for column, evaluate in self._compute}
            if errors.first is None:
                batch = batch.with_columns(columns, batch.mark)
            else:
                batch = self._errors.settle(batch, errors, columns)
        self.emit(batch)
