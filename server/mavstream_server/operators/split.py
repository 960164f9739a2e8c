"""Split: emits each row to the first output whose predicate it satisfies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.plan import ELSE
from mavstream_protocol.queries import OnError
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Ints
from mavstream_server.expressions import RowErrors, compile_predicate
from mavstream_server.operators.operator import ErrorPolicy, Operator
from mavstream_server.operators.queue import Queue


class Split(Operator):
    """Routes rows by predicates, which are evaluated in order; rows that satisfy none go to `else`.

    Rows of outputs without readers are counted: as `unmatched` for `else`, as `unread` for the others.
    """

    kind = "split"

    def __init__(
        self, name: str, outputs: Sequence[tuple[str, Expression]], columns: Sequence[str], on_error: OnError
    ) -> None:
        super().__init__(name)
        self._predicates = tuple((output, compile_predicate(where)) for output, where in outputs)
        self._columns = tuple(columns)
        self._errors = ErrorPolicy(on_error, self)
        self.readers: dict[str, list[Queue]] = {output: [] for output, _ in (*outputs, (ELSE, None))}

    @property
    def all_outputs(self) -> list[Queue]:
        """The queues of all outputs."""
        return [queue for readers in self.readers.values() for queue in readers]

    def attach(self, queue: Queue, output: str | None = None) -> None:
        """Emit the rows of an output to a queue from now on."""
        assert output is not None
        self.readers[output].append(queue)

    def detach(self, queue: Queue) -> None:
        """Stop emitting to a queue."""
        next(readers for readers in self.readers.values() if queue in readers).remove(queue)

    def process(self, port: int, batch: Batch) -> None:
        """Emit each row to one output and the mark to all."""
        left = np.arange(batch.size, dtype=np.int64)
        rest = batch
        for output, where in self._predicates:
            errors = RowErrors()
            matched = where(rest.columns, rest.size, errors) if rest.size else left
            self._errors.record(errors)
            if not self.readers[output]:
                self.count("unread", len(matched))
            self._emit_to(output, batch, left.take(matched))
            unmatched = np.ones(rest.size, dtype=bool)
            unmatched[matched] = False
            if errors.count and self._errors.skips:
                unmatched &= ~errors.mask(rest.size)
            kept = np.flatnonzero(unmatched)
            left, rest = left.take(kept), rest.take(kept)
        if not self.readers[ELSE]:
            self.count("unmatched", len(left))
        self._emit_to(ELSE, batch, left)

    def _emit_to(self, output: str, batch: Batch, rows: Ints) -> None:
        self.outputs = self.readers[output]
        self.emit(batch.take(rows, self._columns) if batch.size else batch)
