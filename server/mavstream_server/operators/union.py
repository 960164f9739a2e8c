"""Union: the rows of all inputs."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.columns.batch import Batch
from mavstream_server.operators.operator import Operator, State
from mavstream_server.operators.time_order import TimeOrder, drop_late


class Union(Operator):
    """Passes rows on as they come; its mark is the lowest of its inputs'."""

    kind = "union"

    def __init__(self, name: str, ports: int, columns: Sequence[str]) -> None:
        super().__init__(name, ports)
        self._columns = tuple(columns)

    def process(self, port: int, batch: Batch) -> None:
        """Hand on the rows, and the joint mark if it moved."""
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if batch.size:
            self.emit(batch.with_columns({name: batch.columns[name] for name in self._columns}, mark))
        else:
            self.emit_mark(mark)


class OrderedUnion(Operator):
    """Merges by time, input and position, up to the joint watermark; late rows are counted and left out."""

    kind = "union"

    def __init__(self, name: str, ports: int, columns: Sequence[str]) -> None:
        super().__init__(name, ports)
        self._columns = tuple(columns)
        self._order = TimeOrder()

    def process(self, port: int, batch: Batch) -> None:
        """Keep the rows, and hand on those that nothing can come before any more."""
        if batch.size:
            kept = drop_late(batch, self.counters)
            columns = {name: kept.columns[name] for name in self._columns}
            assert kept.position is not None
            self._order.add(kept.with_columns(columns, None), port, kept.position)
        mark = batch.mark and self.progress.advance(port, batch.mark)
        if mark is not None:
            self.emit(self._order.release(mark))

    @property
    def state_bytes(self) -> int:
        """Bytes of the rows that wait."""
        return self._order.nbytes

    @property
    def oldest_held(self) -> int | None:
        """Lowest arrival of the rows that wait, or None."""
        return self._order.oldest

    def save(self) -> State:
        """Return the rows that wait."""
        return {**super().save(), "order": self._order.save()}

    def load(self, state: State) -> None:
        """Take over the rows that wait."""
        super().load(state)
        self._order.load(state["order"])
