"""Select: emits the rows for which a predicate is true."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError
from mavstream_server.columns.batch import Batch, mark_only
from mavstream_server.expressions import RowErrors, compile_predicate
from mavstream_server.expressions.requirements import requirements
from mavstream_server.operators.operator import ErrorPolicy, Operator


class Select(Operator):
    """Filters rows and passes marks on; a row whose predicate is null or fails is dropped."""

    kind = "select"
    acts_on_watermarks = False

    def __init__(self, name: str, where: Expression, columns: Sequence[str], on_error: OnError) -> None:
        super().__init__(name)
        self._where = compile_predicate(where)
        self.requirements = requirements(where)
        """What every row must meet to pass; a row that does may still be dropped."""
        self._columns = tuple(columns)
        self._errors = ErrorPolicy(on_error, self)

    def process(self, port: int, batch: Batch) -> None:
        """Emit the rows that satisfy the predicate."""
        if batch.size:
            errors = RowErrors()
            rows = self._where(batch.columns, batch.size, errors)
            if errors.first is not None:
                self._errors.record(errors)
            passed = len(rows)
            if passed == batch.size:
                batch = batch.narrowed(self._columns)
            elif passed:
                batch = batch.take(rows, self._columns)
            elif batch.mark is None:
                return
            else:
                batch = mark_only(batch.mark)
        self.emit(batch)
