"""Union: emits the rows of all inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mavstream_server.columns.batch import Batch
from mavstream_server.operators.operator import Operator, State, SteppedOperator
from mavstream_server.operators.time_order import TimeOrder, drop_late


class Union(Operator):
    """Emits rows in the order of their arrival; its watermark is the lowest of its inputs'."""

    kind = "union"

    def __init__(self, name: str, ports: int, columns: Sequence[str]) -> None:
        super().__init__(name, ports)
        self._columns = tuple(columns)

    def process(self, port: int, batch: Batch) -> None:
        """Emit the rows, and the combined mark if it advanced."""
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if batch.size:
            self.emit(batch.with_columns({name: batch.columns[name] for name in self._columns}, mark))
        else:
            self.emit_mark(mark)


class OrderedUnion(SteppedOperator):
    """Merges rows by time, input and position, up to the combined watermark; late rows are dropped."""

    kind = "union"

    def __init__(self, name: str, ports: int, columns: Sequence[str]) -> None:
        super().__init__(name, ports)
        self._columns = tuple(columns)
        self._order = TimeOrder()

    def steps(self, port: int, batch: Batch) -> Iterator[None]:
        """Buffer the rows, and emit those that no earlier row can precede any more."""
        if batch.size:
            kept = drop_late(batch, self.counters)
            columns = {name: kept.columns[name] for name in self._columns}
            assert kept.position is not None
            self._order.add(kept.with_columns(columns, None), port, kept.position)
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if mark is not None:
            for ready in self._order.releasing(mark):
                if ready is not None:
                    self.emit(ready)
                yield

    @property
    def state_bytes(self) -> int:
        """Bytes of the buffered rows."""
        return self._order.nbytes

    @property
    def oldest_held(self) -> int | None:
        """Earliest arrival (UTC, ns) of the buffered rows, or None."""
        return self._order.oldest

    def save(self) -> State:
        """Return the buffered rows for a snapshot."""
        return {**super().save(), "order": self._order.save()}

    def load(self, state: State) -> None:
        """Restore the buffered rows from a snapshot."""
        super().load(state)
        self._order.load(state["order"])
