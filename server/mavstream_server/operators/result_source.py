"""Result source: reads the results of another query as a source reads the rows of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, Mark, mark_only
from mavstream_server.columns.column import Ints
from mavstream_server.log.cursor import Span
from mavstream_server.log.errors import FrameDamaged
from mavstream_server.log.format.provenance import Provenance
from mavstream_server.log.gather import gather_times
from mavstream_server.log.read_batch import ReadBatch
from mavstream_server.log.result_reader import ResultReader
from mavstream_server.operators.first_time import FirstTime
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source

_Traced = tuple[Span, Provenance]


class ResultSource(Source):
    """Emits results with the times, arrivals, watermarks and marks that their query gave them.

    So operators above answer as they would in one plan with that query. At the end of the log it takes
    the mark that the query has reached since.
    """

    def __init__(self, *arguments: Any) -> None:
        """Create a source as `Source` does; the cursor is that of a `ResultReader`."""
        super().__init__(*arguments)
        reader = self.cursor.reader
        assert isinstance(reader, ResultReader)
        self.results = reader
        """The reader of the other query's result log."""

    @property
    def behind(self) -> bool:
        """Whether any row or mark could be read now."""
        if self.until is not None and self.cursor.position >= self.until:
            return False
        return self.cursor.behind or self.marked or (self.results.over and not self.ended)

    @property
    def place(self) -> None:
        """None: results have marks between them, which cannot be passed over with the rows."""
        return None

    @property
    def marked(self) -> bool:
        """Whether the other query has reached a mark that was not read yet."""
        return self.results.reached().watermark > self.frontier.watermark

    @property
    def next_arrival(self) -> int | None:
        """Arrival time (UTC, ns) of the row or mark that led to the next result, or None."""
        try:
            following = self.cursor.following
        except FrameDamaged as found:
            return found.damaged.arrival
        if following is None:
            return None
        frame, start = following
        traced = _provenance(frame)
        if start < frame.rows:
            return int(traced.arrival[start])
        return frame.arrival if traced.mark is None else traced.mark.arrival

    def read(self, most: int) -> int:
        """Read up to `most` results and emit them; returns their number, 0 for marks alone."""
        rows = super().read(most)
        held = self.until is not None and self.cursor.position >= self.until
        if not (self.ended or held or self.cursor.behind):
            self._catch_up()
        self.results.read()
        return rows

    def _catch_up(self) -> None:
        """Emit the mark that the query has reached, or its end, behind all of its results."""
        reached = self.results.reached()
        if self.marked:
            if self._unseen:
                self._announce(self.cursor.max_time, reached.arrival, counts=True)
            mark = self.frontier._replace(watermark=reached.watermark, arrival=reached.arrival, gap=None)
            self.frontier = mark
            self.emit_mark(mark)
        if self.results.over:
            self.end(reached.arrival)

    def _announce_gap(self, first: Span) -> None:
        frame, start, _ = first
        latest = max(frame.max_before, frame.largest_time(start) if start else BEGIN_OF_TIME)
        self._announce(latest, frame.arrival, counts=True)

    def _hand_on(self, read_batch: ReadBatch) -> None:
        runs = list(_alike(read_batch.spans))
        for spans in runs:
            super()._hand_on(read_batch if len(runs) == 1 else ReadBatch(spans))

    def _batch(self, read_batch: ReadBatch) -> Batch:
        traced = [(span, _provenance(span[0])) for span in read_batch.spans]
        mark = self._mark_behind(traced)
        if not read_batch.rows:
            return Batch({}, 0, _NO_ROWS) if mark is None else mark_only(mark)
        rows = [one for one in traced if one[0][2] > one[0][1]]
        time, row_watermark = gather_times(read_batch.spans)
        return Batch(
            read_batch.columns(self._columns),
            read_batch.rows,
            _concatenated([one.arrival[start:stop] for (_, start, stop), one in rows]),
            time=time,
            position=read_batch.positions if self._needs.position else None,
            row_watermark=row_watermark,
            mark=mark,
        )

    def _mark_behind(self, traced: Sequence[_Traced]) -> Mark | None:
        """Return the mark behind results, None if there is none; it never lowers the watermark."""
        found: Mark | None = None
        for (frame, _, stop), one in traced:
            if stop == frame.rows and one.mark is not None:
                found = one.mark
        if found is None:
            return None
        watermark = max(self.frontier.watermark, found.watermark)
        mark = found._replace(watermark=watermark, since=self.frontier.since)
        self.frontier = mark._replace(gap=None)
        if mark.end:
            self.ended = True
        return mark

    def _since(self, batch: Batch, spans: Sequence[Span], first: FirstTime) -> Batch:
        first.answered(batch)
        if batch.mark is not None:
            batch.mark = batch.mark._replace(since=first.time)
        self.frontier = self.frontier._replace(since=first.time)
        return batch

    def agrees(self, other: Operator) -> bool:
        """Whether both are at the same position, after the same marks, and have announced their gaps."""
        return (
            isinstance(other, ResultSource)
            and self.frontier.watermark == other.frontier.watermark
            and super().agrees(other)
        )


_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


def _provenance(frame: Any) -> Provenance:
    found = frame.provenance
    assert isinstance(found, Provenance)
    return found


def _alike(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield runs of frames that can be one batch: gaps and ends stand behind the rows before them.

    Rows that can be late are kept apart from rows that cannot.
    """
    run: list[Span] = []
    late: bool | None = None  # whether rows of the run can be late
    for span in spans:
        frame, start, stop = span
        one = _provenance(frame)
        if stop > start:
            can_be = one.row_watermark is not None
            if late is not None and late is not can_be:
                yield run
                run = []
            late = can_be
        run.append(span)
        if stop == frame.rows and one.mark is not None and (one.mark.gap is not None or one.mark.end):
            yield run
            run, late = [], None
    if run:
        yield run


def _concatenated(parts: Sequence[Ints]) -> Ints:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
