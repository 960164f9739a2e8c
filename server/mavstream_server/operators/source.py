"""Source: hands rows of a stream's log to a query, at the query's own pace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, Mark, mark_only
from mavstream_server.log.cursor import Cursor, Span
from mavstream_server.log.gather import gather, gather_arrivals, gather_positions, gather_watermarks
from mavstream_server.log.layout import FrameKind
from mavstream_server.log.problems import GapError
from mavstream_server.operators.operator import Operator, State


class Needs(NamedTuple):
    """What the operators above want to know of each row, besides its columns."""

    time: bool = False
    position: bool = False


class Source(Operator):
    """Reads frames at its cursor and emits them as batches, with the marks that stand between the rows.

    Rows that it did not see (ahead of its start, during a pause, or removed by retention) are announced
    by a gap mark, so that windows that could have held them are not answered as if they were whole.
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
    ) -> None:
        """Times are arrival times in microseconds."""
        super().__init__(name)
        self.cursor = cursor
        self._columns = tuple(columns)
        self._needs = needs
        self._start = None if start_at is None else start_at * 1000
        self._stop = None if stop_at is None else stop_at * 1000
        self._unseen = True  # rows ahead of the next one were not seen
        self.ended = False

    def process(self, port: int, batch: Batch) -> None:
        """Sources have no inputs."""
        raise AssertionError("a source has no inputs")

    @property
    def waiting_rows(self) -> int:
        """Rows that could be read now."""
        return self.cursor.backlog.rows

    @property
    def untaken(self) -> bool:
        """Whether a batch that it emitted still waits to be worked on."""
        return any(len(queue) for queue in self.outputs)

    @property
    def behind(self) -> bool:
        """Whether anything could be read now, be it a mark."""
        return self.cursor.backlog.nbytes > 0

    def resume(self, position: int) -> None:
        """Go on from a position after a pause; what lies between was not seen."""
        self.cursor.seek(position)
        self._unseen = True

    def end(self, arrival: int) -> None:
        """Emit nothing any more; windows that are open stay unanswered."""
        if not self.ended:
            self.ended = True
            self.emit_mark(Mark(arrival=arrival, end=True))

    def read(self, most: int) -> int:
        """Emit up to so many rows as one batch; returns how many, which is 0 for marks alone."""
        try:
            spans = self.cursor.take(most)
        except GapError as gap:
            self.counters["missed"] += gap.stop - gap.start
            self._unseen = True
            spans = self.cursor.take(most)
        stopped = None
        if self._start is not None:
            spans = [span for span in spans if span[0].arrival >= self._start]
        if self._stop is not None and spans and spans[-1][0].arrival >= self._stop:
            stopped = next(frame.arrival for frame, _, _ in spans if frame.arrival >= self._stop)
            spans = [span for span in spans if span[0].arrival < self._stop]
        if spans:
            self._start = None
            if self._unseen:
                self._announce_gap(spans[0])
            self.emit(self._batch(spans))
        if stopped is not None:
            self.end(stopped)
        return sum(stop - start for _, start, stop in spans)

    def _announce_gap(self, first: Span) -> None:
        frame, start, _ = first
        self._unseen = False
        latest = frame.max_before
        if start and frame.time is not None:
            latest = max(latest, int(frame.time[:start].max()))
        if latest != BEGIN_OF_TIME and self._needs.time:
            self.emit_mark(Mark(arrival=frame.arrival, gap=latest))

    def _batch(self, spans: list[Span]) -> Batch:
        needs, (last, _, stop) = self._needs, spans[-1]
        mark = self._mark(spans)
        if not any(stop > start for _, start, stop in spans):
            return mark_only(mark) if mark is not None else Batch({}, 0, _NO_ROWS)
        event_time = last.segment.layout.event_time if needs.time else None
        names = self._columns
        if event_time is not None and event_time not in names:
            names = (*names, event_time)
        columns = gather(spans, names)
        if len(spans) == 1:
            size = stop - spans[0][1]
            arrival = np.full(size, last.arrival)
        else:
            arrival = gather_arrivals(spans)
            size = len(arrival)
        batch = Batch(columns, size, arrival, mark=mark)
        if event_time is not None:
            batch.time = columns[event_time].values
            batch.row_watermark = gather_watermarks(spans, batch.time)
            if len(names) > len(self._columns):
                del columns[event_time]
        elif needs.time:
            # Time is arrival: when a row came, the clock had come as far.
            batch.time = batch.row_watermark = arrival // 1000
        if needs.position:
            batch.position = gather_positions(spans)
        return batch

    def _mark(self, spans: list[Span]) -> Mark | None:
        last, _, stop = spans[-1]
        complete = last.kind is FrameKind.COMPLETE
        if complete:
            self.ended = True
        if not self._needs.time:
            return Mark(arrival=last.arrival, end=True) if complete else None
        watermark = last.after
        if stop < last.rows:  # the frame was cut: the next row's watermark is the one that holds here
            ahead = last.row_watermarks()
            watermark = last.before if ahead is None else int(ahead[stop])
        return Mark(watermark, last.arrival, end=complete)

    def save(self) -> State:
        """Return the position of the next row to be read."""
        return {
            **super().save(),
            "position": self.cursor.position,
            "unseen": self._unseen,
            "ended": self.ended,
            "started": self._start is None,
        }

    def load(self, state: State) -> None:
        """Go to where another source stood."""
        super().load(state)
        self.cursor.seek(state["position"])
        self._unseen, self.ended = state["unseen"], state["ended"]
        if state["started"]:
            self._start = None


_NO_ROWS = np.empty(0, dtype=np.int64)
