"""Cursors: independent read positions in a log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mavstream_server.log.errors import FrameDamaged, GapCause, GapError, PositionAheadError
from mavstream_server.log.format.frame import Frame

if TYPE_CHECKING:
    from mavstream_server.log.checked_files import DamagedFrames
    from mavstream_server.log.mapped import MappedSegment
    from mavstream_server.log.reader import LogReader

Span = tuple[Frame, int, int]
"""Rows `start` to `stop` (exclusive) of a frame; both are 0 for a mark, which has no rows."""


def split_at_arrival(spans: Sequence[Span], arrival: int) -> tuple[list[Span], list[Span]]:
    """Split spans at an arrival time (ns) into those that arrived before it and those at or after it."""
    # Arrival times never decrease, so there is one split point, and at most one frame lies on both sides.
    index = bisect_left(spans, arrival, key=_last_arrival)
    before, behind = list(spans[:index]), list(spans[index:])
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
    """Rows and bytes that a cursor has not read yet."""

    rows: int
    nbytes: int


class CursorState(NamedTuple):
    """The state of a cursor; valid for any cursor of the same reader."""

    segment: MappedSegment
    offset: int
    start: int
    position: int


class Cursor:
    """Reads a log from a position; `position` is that of the next row to read.

    If retention removed rows that it has not read yet, or they are damaged, it raises GapError once and
    continues behind them.
    After a seek to a position it also reads the marks directly before that row.
    """

    __slots__ = ("_cache", "_gap", "_offset", "_reader", "_segment", "_start", "position")

    def __init__(self, reader: LogReader, position: int) -> None:
        self._reader = reader
        self._cache = reader.cache
        # The segment of the next frame and its byte offset there; unknown after a seek until the next read.
        self._segment: MappedSegment | None = None
        self._offset = 0
        self._start = 0
        self._gap: GapError | None = None
        self.position = 0
        self.seek(position)

    def seek(self, position: int) -> None:
        """Move to a position; raise PositionAheadError if the log has not reached it."""
        # Rows become readable just before the log's end is updated, so this cursor may be ahead of it.
        end = max(self._reader.end, self.position)
        if not 0 <= position <= end:
            raise PositionAheadError(
                self._reader.path,
                f"expected a position from 0 to {end}, where the log ends; got {position}",
            )
        self._segment, self._gap, self._start = None, None, 0
        self.position = position

    def seek_arrival(self, arrival_ns: int) -> None:
        """Move to the first row or mark that arrived at or after a time (ns), or to the end of the log."""
        segment = self._reader.segment_at_arrival(arrival_ns)
        self._move_to(segment, segment.find_arrival(arrival_ns))
        if self._offset >= segment.limit:
            self.position = segment.end
            return
        try:
            frame = self._reader.frame(segment, self._offset)
        except FrameDamaged as found:
            self.position = found.damaged.start
            return
        stamps = frame.stamps
        self._start = 0 if stamps is None else int(np.searchsorted(stamps, arrival_ns))
        self.position = frame.first_position + self._start

    @property
    def reader(self) -> LogReader:
        """The log's reader."""
        return self._reader

    @property
    def backlog(self) -> Backlog:
        """Rows and bytes between the cursor and the end of the log."""
        segment = self._segment or self._settle()
        read = segment.info.offset + self._offset
        return Backlog(max(self._reader.end - self.position, 0), max(self._reader.end_offset - read, 0))

    @property
    def unread_rows(self) -> int:
        """Rows between the cursor and the end of the log."""
        return max(self._reader.end - self.position, 0)

    @property
    def behind(self) -> bool:
        """Whether there is anything to read now."""
        segment = self._segment or self._settle()
        if self._offset < segment.limit:
            return True
        return bool(self._reader.end_offset > segment.info.offset + self._offset)

    @property
    def end_watermark(self) -> int:
        """The watermark (us) at the end of the log."""
        return self._reader.watermark

    @property
    def next_arrival(self) -> int | None:
        """The arrival time (ns) of the next row or mark to read, or None if there is none."""
        try:
            following = self.following
        except FrameDamaged as found:
            return found.damaged.arrival
        return None if following is None else following[0].arrival_of(following[1])

    @property
    def following(self) -> tuple[Frame, int] | None:
        """The next frame and the row to start at, without reading it; None if there is none yet.

        Raises FrameDamaged.
        """
        segment = self._segment or self._settle()
        if self._offset >= segment.refresh():
            return None
        return self._reader.frame(segment, self._offset), self._start

    @property
    def max_time(self) -> int:
        """The largest time (us) of all rows before the cursor; BEGIN_OF_TIME if there are none.

        Too slow to be called for every row.
        """
        segment = self._segment or self._settle()
        offset, rows = self._offset, self._start
        if not rows:
            ahead = segment.offset_before(offset)
            if ahead is None:
                return int(segment.snapshot.max_before)
            offset = ahead
        try:
            frame: Frame = self._reader.frame(segment, offset)
        except FrameDamaged as found:
            return found.damaged.max_time
        largest: int = max(frame.max_before, frame.largest_time(rows or frame.rows))
        return largest

    @property
    def place(self) -> int | None:
        """A number that cursors of one reader share where the same frame is next; None inside of a frame.

        Also None if the next frame is not known yet, after a seek or at a gap.
        """
        segment = self._segment
        if segment is None or self._start or self._gap is not None:
            return None
        return segment.key | self._offset

    def read_key(self, rows: int) -> object | None:
        """Return a key that is equal for cursors that would read the same rows; None if it is unknown."""
        segment = self._segment
        if segment is None or self._gap is not None:
            return None
        return segment.key | self._offset, self._start, self._reader.end_offset, rows

    @property
    def state(self) -> CursorState:
        """The state of the cursor; available once something was read."""
        assert self._segment is not None
        return CursorState(self._segment, self._offset, self._start, self.position)

    def restore(self, state: CursorState) -> None:
        """Move to where another cursor of the same reader was."""
        self._segment, self._offset, self._start, self.position = state

    def next(self) -> tuple[Frame, int] | None:
        """Return the next frame and the row to start at, or None when everything was read."""
        while True:
            segment, offset = self._segment, self._offset
            if segment is None or self._gap is not None or offset >= segment.limit:
                if not self._advance():
                    return None
                segment, offset = self._segment, self._offset
                assert segment is not None
            try:
                frame = self._cache.get(segment.key | offset) or self._reader.decode(segment, offset)
                break
            except FrameDamaged as found:
                self._pass(found.damaged)
        self._offset = offset + frame.nbytes
        self.position = frame.first_position + frame.rows
        start = self._start
        if start:
            self._start = 0
        return frame, start

    def take(self, rows: int, frames: int = 4096) -> list[Span]:
        """Read at most `rows` rows and `frames` frames, including marks; empty when everything was read.

        The last span may end inside of a frame; the next call returns the rest of it.
        """
        spans: list[Span] = []
        cache, decode = self._cache, self._reader.decode
        damaged: DamagedFrames | None = None
        while rows > 0 and len(spans) < frames:
            segment = self._segment
            if segment is None or self._gap is not None or self._offset >= segment.limit:
                if not self._advance(defer_gap=bool(spans)):
                    break
                segment = self._segment
                assert segment is not None
            offset, start, limit, key = self._offset, self._start, segment.limit, segment.key
            while rows > 0 and offset < limit and len(spans) < frames:
                try:
                    frame = cache.get(key | offset) or decode(segment, offset)
                except FrameDamaged as found:
                    damaged = found.damaged
                    break
                stop = frame.rows
                if stop - start > rows:
                    stop = start + rows
                    spans.append((frame, start, stop))
                    start = stop
                    break
                rows -= stop - start
                offset += frame.nbytes
                spans.append((frame, start, stop))
                start = 0
            if damaged is not None and not spans:
                self._pass(damaged)
                damaged = None
                continue
            self._offset, self._start = offset, start
            self.position = frame.first_position + stop
            if start or damaged is not None:  # the next call raises the gap
                break
        return spans

    def _pass(self, damaged: DamagedFrames) -> None:
        """Move behind damaged frames; raise GapError if rows are lost with them."""
        start, stop = self.position, damaged.stop
        self._offset, self._start = damaged.stop_offset, 0
        if stop > start:
            self.position = stop
            raise GapError(
                self._reader.path, start, stop, damaged.watermark, damaged.max_time, GapCause.DAMAGE
            )

    def _advance(self, *, defer_gap: bool = False) -> bool:
        """Move to the next readable frame; return False if there is none yet, or if a gap was deferred."""
        segment = self._segment or self._settle()
        while self._gap is None and self._offset >= segment.refresh():
            # A segment is sealed after its last commit: check once more for frames committed in between.
            if not segment.sealed:
                return False
            if self._offset >= segment.refresh():
                segment = self._enter(self._reader.segment_after(segment, self.position), segment)
        if self._gap is None:
            return True
        if defer_gap:
            return False
        gap, self._gap = self._gap, None
        raise gap

    def _settle(self) -> MappedSegment:
        """Find the frame with the row at the position, after a seek."""
        segment = self._reader.segment_at(self.position)
        if segment.info.position > self.position:
            return self._enter(segment)
        offset = segment.find_position(self.position)
        self._move_to(segment, offset)
        if offset < segment.limit:
            try:
                first = self._reader.frame(segment, offset).first_position
            except FrameDamaged:
                return segment
            self._start = max(self.position - first, 0)
        return segment

    def _enter(self, segment: MappedSegment, last: MappedSegment | None = None) -> MappedSegment:
        """Move to the start of a segment; rows between the position and there are missing: record a gap.

        `last` is the segment that was read before. Retention removes older segments first: if that one is
        still there, the rows were not removed by retention.
        """
        start, stop = self.position, segment.info.position
        self._move_to(segment, segment.first)
        if stop > start:
            known = segment.snapshot
            lost = last is not None and last.file.exists()
            cause = GapCause.DAMAGE if lost else GapCause.RETENTION
            self._gap = GapError(self._reader.path, start, stop, known.after, known.max_before, cause)
            self.position = stop
        return segment

    def _move_to(self, segment: MappedSegment, offset: int) -> None:
        self._segment, self._offset = segment, offset
        self._start, self._gap = 0, None
