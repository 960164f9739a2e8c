"""Cursors: what reads a log, each at its own pace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mavstream_server.log.errors import GapError, PositionAheadError
from mavstream_server.log.format.frame import Frame

if TYPE_CHECKING:
    from mavstream_server.log.mapped import MappedSegment
    from mavstream_server.log.reader import LogReader

Span = tuple[Frame, int, int]
"""Rows of a frame from start to stop; a mark has neither rows nor start."""


def cut_at_arrival(spans: Sequence[Span], arrival: int) -> tuple[list[Span], list[Span]]:
    """Return what arrived before a time, in ns, and what arrived then or later."""
    # Arrivals never fall, so there is one place where to cut: at most one frame lies on both sides.
    place = bisect_left(spans, arrival, key=_last_arrival)
    before, behind = list(spans[:place]), list(spans[place:])
    if behind:
        frame, start, stop = behind[0]
        stamps = frame.stamps
        row = start if stamps is None else start + int(np.searchsorted(stamps[start:stop], arrival))
        if row > start:
            before.append((frame, start, row))
            behind[0] = (frame, row, stop)
    return before, behind


def _last_arrival(span: Span) -> int:
    frame, _, stop = span
    return frame.arrival_of(stop - 1)


class Backlog(NamedTuple):
    """What a cursor has not read yet."""

    rows: int
    nbytes: int


class CursorState(NamedTuple):
    """Where a cursor stands; good for any cursor of the same reader."""

    segment: MappedSegment
    place: int
    start: int
    position: int


class Cursor:
    """A place in a log. `position` is that of the next row to be read.

    Rows that retention removed ahead of the cursor raise GapError, once; it then stands behind them.
    A cursor that was sought to a position also reads the marks just ahead of that row.
    """

    __slots__ = ("_cache", "_gap", "_place", "_reader", "_segment", "_start", "position")

    def __init__(self, reader: LogReader, position: int) -> None:
        self._reader = reader
        self._cache = reader.cache
        # Where the next frame starts; unknown after a seek until something is read.
        self._segment: MappedSegment | None = None
        self._place = 0
        self._start = 0
        self._gap: GapError | None = None
        self.position = 0
        self.seek(position)

    def seek(self, position: int) -> None:
        """Go to a position; PositionAheadError if the log has not reached it."""
        # Rows are there a moment before the log says that it ends behind them: some may have been read.
        end = max(self._reader.end, self.position)
        if not 0 <= position <= end:
            raise PositionAheadError(
                self._reader.path, f"position {position} is not in the log, which ends at {end}; seek there"
            )
        self._segment, self._gap, self._start = None, None, 0
        self.position = position

    def seek_arrival(self, arrival_ns: int) -> None:
        """Go to the first row or mark that arrived at or after a time, or to the end."""
        segment = self._reader.segment_at_arrival(arrival_ns)
        self._stand(segment, segment.find_arrival(arrival_ns))
        if self._place < segment.limit:
            frame = self._reader.frame(segment, self._place)
            stamps = frame.stamps
            self._start = 0 if stamps is None else int(np.searchsorted(stamps, arrival_ns))
            self.position = frame.first_position + self._start
        else:
            self.position = segment.end

    @property
    def backlog(self) -> Backlog:
        """Rows and bytes between the cursor and the end of the log."""
        segment = self._segment or self._settle()
        read = segment.info.offset + self._place
        return Backlog(max(self._reader.end - self.position, 0), max(self._reader.end_offset - read, 0))

    @property
    def behind(self) -> bool:
        """Whether anything could be read now."""
        segment = self._segment or self._settle()
        if self._place < segment.limit:
            return True
        return bool(self._reader.end_offset > segment.info.offset + self._place)

    @property
    def next_arrival(self) -> int | None:
        """When the next row or mark to be read arrived, or None if there is none."""
        segment = self._segment or self._settle()
        if self._place >= segment.refresh():
            return None
        frame: Frame = self._reader.frame(segment, self._place)
        return frame.arrival_of(self._start)

    @property
    def max_time(self) -> int:
        """The largest time (us) of any row ahead of it; BEGIN_OF_TIME if there is none. Not for every row."""
        segment = self._segment or self._settle()
        place, rows = self._place, self._start
        if not rows:
            ahead = segment.place_ahead(place)
            if ahead is None:
                return int(segment.snapshot.max_before)
            place = ahead
        frame: Frame = self._reader.frame(segment, place)
        largest: int = max(frame.max_before, frame.largest_time(rows or frame.rows))
        return largest

    def standing(self, rows: int) -> object | None:
        """Return what tells whether another cursor would take the same rows, or None if none could."""
        segment = self._segment
        if segment is None or self._gap is not None:
            return None
        return segment.key | self._place, self._start, self._reader.end_offset, rows

    @property
    def place(self) -> CursorState:
        """Where it stands, once something was read."""
        assert self._segment is not None
        return CursorState(self._segment, self._place, self._start, self.position)

    def stand(self, place: CursorState) -> None:
        """Go where another cursor of the same reader stood."""
        self._segment, self._place, self._start, self.position = place

    def next(self) -> tuple[Frame, int] | None:
        """Return the next frame and the row to start at, or None when all is read."""
        segment, place = self._segment, self._place
        if segment is None or self._gap is not None or place >= segment.limit:
            if not self._advance():
                return None
            segment, place = self._segment, self._place
            assert segment is not None
        frame = self._cache.get(segment.key | place) or self._reader.decode(segment, place)
        self._place = place + frame.nbytes
        self.position = frame.stop
        start = self._start
        if start:
            self._start = 0
        return frame, start

    def take(self, rows: int, frames: int = 4096) -> list[Span]:
        """Return up to so many rows in up to so many frames, marks among them; empty when all is read.

        The last frame may be cut: the rest of it comes with the next call.
        """
        spans: list[Span] = []
        cache, decode = self._cache, self._reader.decode
        while rows > 0 and len(spans) < frames:
            segment, place = self._segment, self._place
            if segment is None or self._gap is not None or place >= segment.limit:
                if not self._advance(hold_gap=bool(spans)):
                    break
                segment, place = self._segment, self._place
                assert segment is not None
            frame = cache.get(segment.key | place) or decode(segment, place)
            start, stop = self._start, frame.rows
            if stop - start > rows:
                stop = self._start = start + rows
            else:
                self._start = 0
                self._place = place + frame.nbytes
            self.position = frame.first_position + stop
            rows -= stop - start
            spans.append((frame, start, stop))
        return spans

    def _advance(self, *, hold_gap: bool = False) -> bool:
        """Stand where a frame can be read; False if there is none yet, or a gap is being held back."""
        segment = self._segment or self._settle()
        while self._gap is None and self._place >= segment.refresh():
            # Sealed only after its last frame was committed, so what is committed must be looked at again.
            if not segment.sealed:
                return False
            if self._place >= segment.refresh():
                segment = self._enter(self._reader.segment_behind(segment, self.position))
        if self._gap is None:
            return True
        if hold_gap:
            return False
        gap, self._gap = self._gap, None
        raise gap

    def _settle(self) -> MappedSegment:
        """Find the frame at the position."""
        segment = self._reader.segment_at(self.position)
        if segment.info.position > self.position:
            return self._enter(segment)
        place = segment.find_position(self.position)
        self._stand(segment, place)
        if place < segment.limit:
            first = self._reader.frame(segment, place).first_position
            self._start = max(self.position - first, 0)
        return segment

    def _enter(self, segment: MappedSegment) -> MappedSegment:
        """Stand at the start of a segment; rows between here and there are gone."""
        start, stop = self.position, segment.info.position
        self._stand(segment, segment.first)
        if stop > start:
            known = segment.snapshot
            self._gap = GapError(self._reader.path, start, stop, known.after, known.max_before)
            self.position = stop
        return segment

    def _stand(self, segment: MappedSegment, place: int) -> None:
        self._segment, self._place = segment, place
        self._start, self._gap = 0, None
