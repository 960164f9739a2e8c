"""Output: appends the answers of a query to its sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mavstream_server.columns.batch import Batch
from mavstream_server.core.latency import LatencyHistogram
from mavstream_server.operators.operator import Operator, State


class StoredResults(Protocol):
    """The results since a checkpoint that are stored already, and are computed again after a recovery."""

    remaining: int
    """Stored rows that have not been computed again."""
    rows: int
    """Rows that were computed again."""

    def unrepeated(self, batch: Batch) -> Batch:
        """Return the rows of a batch that are not stored."""


class Sink(Protocol):
    """Stores the answers of a query. It never blocks the engine."""

    @property
    def offset(self) -> int:
        """The offset of the next answer."""

    def append(self, batch: Batch, now: int) -> None:
        """Append the rows of a batch that was answered at `now` (UTC, ns)."""

    def restart(self, offset: int) -> StoredResults | None:
        """Continue at an offset: the rows from there on will be computed again.

        Returns those that are stored and cannot be removed, if there are any.
        """


class Output(Operator):
    """The root of every running query: counts answers, records their latency and detects the end."""

    kind = "output"

    def __init__(self, name: str, columns: Sequence[str], sink: Sink, now: Callable[[], int]) -> None:
        super().__init__(name)
        self.columns = tuple(columns)
        self.sink = sink
        self._now = now
        self.latency = LatencyHistogram()
        self.rows = 0
        self.replay: StoredResults | None = None
        """Stored results that are still to be computed again; None if there are none."""
        self.replayed_rows = 0
        """Results that were computed again after a recovery."""
        self.ended = False

    def process(self, port: int, batch: Batch) -> None:
        """Append the rows to the sink."""
        if batch.size:
            self.rows += batch.size
            if self.replay is not None:
                batch = self._unrepeated(batch, self.replay)
        if batch.size:
            now = self._now()
            self.latency.record(batch.arrival, now)
            self.sink.append(batch, now)
        if batch.mark is not None and batch.mark.end:
            self.ended = True

    def _unrepeated(self, batch: Batch, replay: StoredResults) -> Batch:
        """Return the rows of a batch that are not stored yet."""
        batch = replay.unrepeated(batch)
        self.replayed_rows = replay.rows
        if not replay.remaining:
            self.replay = None
        return batch

    def save(self) -> State:
        """Return the offset of the next answer and the counts."""
        return {**super().save(), "offset": self.sink.offset, "rows": self.rows, "ended": self.ended}

    def load(self, state: State) -> None:
        """Continue at the offset of a snapshot."""
        super().load(state)
        self.replay = self.sink.restart(state["offset"])
        self.rows, self.ended = state["rows"], state["ended"]
