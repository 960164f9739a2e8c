"""Source: reads rows from a stream's log for a query, at the query's own pace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.schema import Schema
from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, Mark, mark_only
from mavstream_server.columns.column import DTYPES, Column
from mavstream_server.core.metrics import SheddingInterval
from mavstream_server.log.cursor import Cursor, CursorState, Span, split_at_arrival
from mavstream_server.log.errors import GapCause, GapError
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.log.read_batch import ReadBatch
from mavstream_server.log.shared_reads import SharedReads
from mavstream_server.operators.first_time import FirstTime
from mavstream_server.operators.operator import Operator, State
from mavstream_server.operators.shedding.shedder import WEIGHT, Shedder


class Needs(NamedTuple):
    """What the operators above a source need of each row besides its columns and times."""

    position: bool = False


class Source(Operator):
    """Reads frames with a cursor and emits them as batches, with the marks between the rows.

    Rows that it did not see (before its start, during a pause, removed by retention, or damaged) are
    announced by a gap mark, so that windows that could have contained them are not answered as if they were
    complete.
    """

    kind = "source"

    def __init__(
        self,
        name: str,
        cursor: Cursor,
        columns: Sequence[str],
        needs: Needs,
        start_at: int | None = None,
        stop_at: int | None = None,
        shedder: Shedder | None = None,
        first_time: FirstTime | None = None,
    ) -> None:
        """Create a source that reads from a cursor.

        `start_at` and `stop_at` are arrival times in microseconds; `first_time` is for one-time queries.
        """
        super().__init__(name)
        self.cursor = cursor
        self.shared: SharedReads | None = None
        """Read batches that sources on the same stream share, or None."""
        self._shedder = shedder or Shedder(name)
        self._columns: tuple[str, ...] = ()
        self._weighs = False
        self.carry(columns)
        self._needs = needs
        self._start = None if start_at is None else start_at * 1000
        self._stop = None if stop_at is None else stop_at * 1000
        self._first_time = first_time
        self._unseen = True  # rows before the next one were not seen
        self.ended = False
        self.read_to = 0
        """Arrival of the last row or mark that was read (UTC, ns)."""
        self.frontier = Mark()
        """The frontier: the mark that applies after the last batch that was read."""
        self.until: int | None = None
        """The position before which the source stops reading for now; None for no limit."""

    def carry(self, columns: Sequence[str]) -> None:
        """Emit these columns from now on; `WEIGHT` may be among them."""
        self._columns = tuple(column for column in columns if column != WEIGHT)
        self._row_bytes = _row_bytes(self.cursor.reader.description.schema, self._columns)
        self._weighs = WEIGHT in columns

    def provide(self, needs: Needs) -> None:
        """Emit from now on what the operators above need of each row besides its columns."""
        self._needs = needs

    def stop_at(self, time: int | None) -> None:
        """Read nothing that arrives at `time` (us) or later; None removes the limit."""
        self._stop = None if time is None else time * 1000

    def rank_by(self, utility: Expression | None) -> None:
        """Shed rows of least utility first from now on; None sheds rows at random."""
        self._shedder.rank_by(utility)

    def shed(self, share: float) -> None:
        """Shed a share of the rows from here on, 0 for none; they are counted as `shed`."""
        self._shedder.set(share)

    @property
    def shedder(self) -> Shedder | None:
        """The load shedder, or None while no rows are shed."""
        return self._shedder if self._shedder.share else None

    @property
    def shedding_intervals(self) -> tuple[SheddingInterval, ...]:
        """The most recent shedding intervals, oldest first."""
        return self._shedder.record.intervals

    def process(self, port: int, batch: Batch) -> None:
        """Raise an error: sources have no inputs."""
        raise AssertionError("a source has no inputs")

    @property
    def waiting_rows(self) -> int:
        """The number of rows that could be read now."""
        rows = self.cursor.unread_rows
        return rows if self.until is None else min(rows, max(self.until - self.cursor.position, 0))

    @property
    def untaken(self) -> bool:
        """Whether a batch that it emitted is still queued."""
        return any(len(queue) for queue in self.outputs)

    @property
    def behind(self) -> bool:
        """Whether any row or mark could be read now."""
        return self.cursor.behind and (self.until is None or self.cursor.position < self.until)

    @property
    def stream_watermark(self) -> int:
        """The watermark (us) at the end of the stream's log, which the source may not have read yet."""
        return self.cursor.end_watermark

    @property
    def next_arrival(self) -> int | None:
        """Arrival time (UTC, ns) of the next row or mark to be read, or None."""
        return self.cursor.next_arrival

    def resume(self, position: int) -> None:
        """Continue from a position after a pause; the rows in between count as missed."""
        self.count("missed", position - self.cursor.position)
        self.cursor.seek(position)
        self._unseen = True

    def end(self, arrival: int) -> None:
        """End the source: emits an end mark and nothing after it; open windows stay unanswered."""
        if not self.ended:
            self.ended = True
            self.frontier = self.frontier._replace(end=True)
            self.emit_mark(Mark(arrival=arrival, end=True))

    @property
    def place(self) -> int | None:
        """The cursor's `place`; None if more has to be done with the next rows than to emit them."""
        if (
            self._unseen
            or self.ended
            or self.until is not None
            or self._start is not None
            or self._stop is not None
            or self._first_time is not None
            or self._shedder.quota
        ):
            return None
        return self.cursor.place

    def skip(self, rows: int, after: CursorState, mark: Mark, read_to: int) -> None:
        """Pass over the rows from `place` to a later state of the cursor, as if they had been emitted.

        To be called only if nothing above would come of them. `read_to` is the arrival of the last one.
        """
        self.cursor.restore(after)
        self.frontier, self.read_to = mark, read_to
        self.rows_out += rows
        self.bytes_out += rows * self._row_bytes

    def read(self, most: int) -> int:
        """Read up to `most` rows and emit them as one batch; returns their number, 0 for marks alone."""
        while True:
            try:
                read_batch = self._take(most)
                break
            except GapError as gap:
                reason = "damaged" if gap.cause is GapCause.DAMAGE else "missed"
                self.counters[reason] += gap.stop - gap.start
                self._unseen = True
        stopped = None
        if self._start is not None or self._stop is not None:
            read_batch, stopped = self._between(read_batch)
        if read_batch.spans:
            self._start = None
            last, _, stop = read_batch.spans[-1]
            self.read_to = last.arrival_of(stop - 1) if stop else last.arrival
            if self._unseen:
                self._announce_gap(read_batch.spans[0])
            self._hand_on(read_batch)
        if stopped is not None:
            self.end(stopped)
        return read_batch.rows

    def _hand_on(self, read_batch: ReadBatch) -> None:
        """Emit rows that were read, without those that are shed, and the mark behind them."""
        batch = self._batch(read_batch)
        if self._first_time is not None:
            batch = self._since(batch, read_batch.spans, self._first_time)
        if self._shedder.quota and read_batch.rows:
            batch = self._shed(batch, read_batch)
        self.emit(self._with_weights(batch) if self._weighs and batch.size else batch)

    def _take(self, most: int) -> ReadBatch:
        if self.until is not None:
            most = min(most, self.until - self.cursor.position)
            if most <= 0:
                return ReadBatch(())
        if self.shared is None:
            return ReadBatch(self.cursor.take(most))
        return self.shared.take(self.cursor, most)

    def _between(self, read_batch: ReadBatch) -> tuple[ReadBatch, int | None]:
        """Return the rows that arrived between start and stop, and the arrival of the first one after."""
        spans, stopped = read_batch.spans, None
        if self._start is not None:
            spans = split_at_arrival(spans, self._start)[1]
        if self._stop is not None:
            spans, behind = split_at_arrival(spans, self._stop)
            if behind:
                frame, start, _ = behind[0]
                stopped = frame.arrival_of(start)
        return ReadBatch(spans), stopped

    def _announce_gap(self, first: Span) -> None:
        frame, start, _ = first
        latest = frame.max_before
        if start and frame.time is not None:
            latest = max(latest, int(frame.time[:start].max()))
        self._announce(latest, frame.arrival_of(start), counts=frame.segment.layout.event_time is not None)

    def _announce(self, latest: int, arrival: int, *, counts: bool) -> None:
        """Emit a gap mark: rows up to the time `latest` (us) were not seen, if there were any.

        `counts` is whether that is the first time of a one-time query.
        """
        self._unseen = False
        if latest == BEGIN_OF_TIME:
            return
        if self._first_time is not None and counts:
            self._first_time.missed(latest)
        self.emit_mark(Mark(arrival=arrival, gap=latest))

    def _batch(self, read_batch: ReadBatch) -> Batch:
        spans = read_batch.spans
        mark = self.frontier = self._mark(spans)
        if not read_batch.rows:
            return mark_only(mark)
        arrival = read_batch.arrivals
        event_time = spans[-1][0].segment.layout.event_time
        if event_time is None or event_time in self._columns:
            columns = read_batch.columns(self._columns)
        else:
            columns = read_batch.columns((*self._columns, event_time))
        batch = Batch(columns, read_batch.rows, arrival, mark=mark)
        if event_time is not None:
            batch.time = columns[event_time].values
            batch.row_watermark = read_batch.watermarks(batch.time)
            if event_time not in self._columns:
                del columns[event_time]
        else:
            # Time is arrival time: a row's watermark is its own arrival.
            batch.time = batch.row_watermark = arrival // 1000
        if self._needs.position:
            batch.position = read_batch.positions
        return batch

    def _since(self, batch: Batch, spans: Sequence[Span], first: FirstTime) -> Batch:
        """Set the time from which on windows count in the mark of a batch."""
        first.read(spans, batch)
        if batch.mark is not None:
            batch.mark = batch.mark._replace(since=first.time)
        return batch

    def _shed(self, batch: Batch, read_batch: ReadBatch) -> Batch:
        """Return the rows of a batch that are not shed."""
        kept = self._shedder.kept(read_batch)
        self.counters["shed"] += batch.size - len(kept)
        return batch.take(kept)

    def _with_weights(self, batch: Batch) -> Batch:
        """Add the weight column: how many rows of the stream each row represents."""
        weights = np.full(batch.size, self._shedder.weight)
        return batch.with_columns({**batch.columns, WEIGHT: Column(weights)}, batch.mark)

    def _mark(self, spans: Sequence[Span]) -> Mark:
        mark = mark_behind(spans)
        if mark.end:
            self.ended = True
        return mark

    def agrees(self, other: Operator) -> bool:
        """Whether both are at the same position, after the same marks, and have announced their gaps."""
        if not isinstance(other, Source) or self.ended or other.ended:
            return False
        key = self.cursor.read_key(0)
        return (
            key is not None
            and key == other.cursor.read_key(0)
            and self._start is None is other._start
            and self._unseen is other._unseen
        )

    def save(self) -> State:
        """Return the position of the next row to be read and the state of load shedding."""
        return {
            **super().save(),
            "position": self.cursor.position,
            "unseen": self._unseen,
            "ended": self.ended,
            "read_to": self.read_to,
            "started": self._start is None,
            "shedding": self._shedder.save(),
            "frontier": list(self.frontier),
            "first_time": None if self._first_time is None else self._first_time.save(),
        }

    def load(self, state: State) -> None:
        """Continue at the position of a snapshot."""
        super().load(state)
        self.cursor.seek(state["position"])
        self._unseen, self.ended, self.read_to = state["unseen"], state["ended"], state["read_to"]
        self._shedder.load(state["shedding"])
        if state["started"]:
            self._start = None
        self.frontier = Mark(*state["frontier"])
        if self._first_time is not None:
            self._first_time.load(state["first_time"])


def mark_behind(spans: Sequence[Span]) -> Mark:
    """Return the mark that applies behind rows and marks of a stream."""
    last, _, stop = spans[-1]
    watermark = last.after
    if stop < last.rows:  # the frame was not read to its end: the next row's watermark applies
        ahead = last.row_watermarks()
        watermark = last.before if ahead is None else int(ahead[stop])
    arrival = last.arrival_of(stop - 1) if stop else last.arrival
    return Mark(watermark, arrival, end=last.kind is FrameKind.COMPLETE)


def _row_bytes(schema: Schema, columns: Sequence[str]) -> int:
    """Return the bytes of an emitted row in order and without nulls: its columns, arrival and time."""
    types = {field.name: field.type for field in schema}
    return 16 + sum([DTYPES[types[column]].itemsize for column in columns])
