"""Project: emits one row per input row, with computed columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.expressions import RowErrors, compile_expression
from mavstream_server.operators.operator import ErrorPolicy, Operator


class Project(Operator):
    """Computes the columns that downstream operators read."""

    kind = "project"
    acts_on_watermarks = False

    def __init__(self, name: str, compute: Sequence[tuple[str, Expression]], on_error: OnError) -> None:
        super().__init__(name)
        self._compute = tuple((column, compile_expression(expression)) for column, expression in compute)
        self._errors = ErrorPolicy(on_error, self)
        self._texts = [column for column, expression in compute if expression.type is FieldType.STRING]
        self._dictionaries: list[Dictionary] = []

    def process(self, port: int, batch: Batch) -> None:
        """Emit the rows with their computed columns."""
        if batch.size:
            errors = RowErrors()
            given, size = batch.columns, batch.size
            columns = {column: evaluate(given, size, errors) for column, evaluate in self._compute}
            if self._texts:
                self._dictionaries = self._computed(given, columns)
            if errors.first is None:
                batch = batch.with_columns(columns, batch.mark)
            else:
                batch = self._errors.settle(batch, errors, columns)
        self.emit(batch)

    def _computed(self, given: Mapping[str, Column], columns: Mapping[str, Column]) -> list[Dictionary]:
        """Return the dictionaries of texts that were computed, not just passed on."""
        known = {id(column.dictionary) for column in given.values()}
        found = (columns[name].dictionary for name in self._texts)
        return [each for each in found if each is not None and id(each) not in known]

    @property
    def state_bytes(self) -> int:
        """Bytes of the texts that were computed last; they live as long as the stream's texts."""
        return sum(each.nbytes for each in self._dictionaries)
