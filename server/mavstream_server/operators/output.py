"""Output: appends the answers of a query to its sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mavstream_protocol.schema import Schema
from mavstream_server.columns.batch import Batch, Mark
from mavstream_server.core.latency import LatencyHistogram
from mavstream_server.operators.operator import Operator, State
from mavstream_server.operators.source import Source


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

    @property
    def revision(self) -> int:
        """How often the query's plan was replaced before the next answer."""

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        """Append the rows of a batch that was answered at `now` (UTC, ns), and the mark behind them.

        `positions` are those behind the last rows that were read of each source.
        """

    def change(self, schema: Schema) -> None:
        """Take answers of another schema from here on."""

    def restart(self, offset: int) -> StoredResults | None:
        """Continue at an offset: the rows from there on will be computed again.

        Returns those that are stored and cannot be removed, if there are any.
        """


class Output(Operator):
    """The root of every running query: counts answers, records their latency and detects the end.

    A mark without rows is appended with the next rows; at once if it is a gap or the end.
    """

    kind = "output"
    acts_on_watermarks = False

    def __init__(self, name: str, columns: Sequence[str], sink: Sink, now: Callable[[], int]) -> None:
        super().__init__(name)
        self.columns = tuple(columns)
        self.sink = sink
        self.sources: Sequence[Source] = ()
        """The sources that read for the query: those of shared pipelines where it shares a prefix."""
        self._now = now
        self._mark: Mark | None = None  # not appended yet
        self.reached = Mark()
        """The last mark; all rows before it were appended."""
        self.latency = LatencyHistogram()
        self.rows = 0
        self.replay: StoredResults | None = None
        """Stored results that are still to be computed again; None if there are none."""
        self.replayed_rows = 0
        """Results that were computed again after a recovery."""
        self.ended = False

    def change(self, schema: Schema) -> None:
        """Append answers of another schema from here on."""
        self.sink.change(schema)
        self.columns = schema.names

    def process(self, port: int, batch: Batch) -> None:
        """Append the rows and the mark to the sink."""
        mark, waiting = batch.mark, self._mark
        if mark is None:
            mark = waiting
        elif waiting is not None and waiting.watermark > mark.watermark:
            mark = mark._replace(watermark=waiting.watermark)
        if mark is not None:
            self.reached = mark
        if batch.size:
            self.rows += batch.size
            if self.replay is not None:
                batch = self._unrepeated(batch, self.replay)
        if batch.size:
            now = self._now()
            self.latency.record(batch.arrival, now)
            self._append(batch, mark, now)
        elif mark is not None and (mark.end or mark.gap is not None):
            self._append(batch, mark, self._now())
        else:
            self._mark = mark
        if mark is not None and mark.end:
            self.ended = True

    def _append(self, batch: Batch, mark: Mark | None, now: int) -> None:
        if mark is not batch.mark:
            batch = batch.with_columns(batch.columns, mark)
        self._mark = None
        self.sink.append(batch, now, [source.cursor.position for source in self.sources])

    def _unrepeated(self, batch: Batch, replay: StoredResults) -> Batch:
        """Return the rows of a batch that are not stored yet."""
        batch = replay.unrepeated(batch)
        self.replayed_rows = replay.rows
        if not replay.remaining:
            self.replay = None
        return batch

    def save(self) -> State:
        """Return the offset of the next answer, the counts, and the mark that was not appended yet."""
        return {
            **super().save(),
            "offset": self.sink.offset,
            "rows": self.rows,
            "ended": self.ended,
            "mark": None if self._mark is None else list(self._mark),
            "reached": list(self.reached),
        }

    def load(self, state: State) -> None:
        """Continue at the offset of a snapshot."""
        super().load(state)
        self.replay = self.sink.restart(state["offset"])
        self.rows, self.ended = state["rows"], state["ended"]
        self._mark = None if state["mark"] is None else Mark(*state["mark"])
        self.reached = Mark(*state["reached"])
