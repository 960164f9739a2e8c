"""The readers' side of a log in one process: segments mapped while needed, frames decoded once while hot."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from weakref import WeakValueDictionary

from mavstream_server.log.cursor import Cursor
from mavstream_server.log.errors import LogCorruptError, LogMissingError
from mavstream_server.log.format.description import load_description
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import Layout
from mavstream_server.log.format.segment import COMMITTED, SEALED, SegmentName, list_segments, read_info
from mavstream_server.log.mapped import MappedSegment
from mavstream_server.log.shared_reads import SharedReads

# What a decoded frame costs in Python objects, besides its bytes: itself, and views per column.
_FRAME_COST = 600
_COLUMN_COST = 350


class LogReader:
    """What all cursors of a process on one log share. Needs only the files, wherever the writer is.

    Not thread-safe. `decodes` counts how many frames were taken from the files.
    """

    def __init__(self, path: Path, cache_bytes: int = 32 << 20) -> None:
        self.path = path
        self.description = load_description(path)
        self.layout = Layout(self.description)
        self.decodes = 0
        self.shared = SharedReads()
        # First in, first out: cursors that keep up share what is at the end of the log, and one that lags
        # far behind gains nothing from frames being moved up.
        self.cache: OrderedDict[int, Frame] = OrderedDict()
        self._cache_room = cache_bytes
        self._frame_cost = _FRAME_COST + _COLUMN_COST * len(self.layout.fields)
        self._segments: WeakValueDictionary[int, MappedSegment] = WeakValueDictionary()
        self._tail = self.segment_at(1 << 62)
        # What `grown` saw last: the commit word of the tail then, and the end of the log.
        self._seen = (-1, -1)

    @property
    def end(self) -> int:
        """The position of the next row to be committed."""
        return self._newest().end

    @property
    def begin(self) -> int:
        """The position of the first row that is still there."""
        return self._names()[0].position

    @property
    def end_offset(self) -> int:
        """Bytes of the log up to its end, counted since it was created."""
        tail = self._newest()
        return tail.info.offset + tail.refresh()

    def grown(self) -> bool:
        """Whether anything was committed since this was last asked; made to be asked often."""
        words, (seen, before) = self._tail.words, self._seen
        if words[COMMITTED] == seen and not words[SEALED]:
            return False
        tail = self._newest()
        committed = tail.refresh()
        self._seen = committed, tail.info.offset + committed
        return self._seen[1] != before

    @property
    def mapped(self) -> int:
        """How many segments are mapped at present."""
        return len(self._segments)

    def cursor(self, position: int | None = None) -> Cursor:
        """Return a cursor that stands at a position, by default the end."""
        return Cursor(self, self.end if position is None else position)

    def frame(self, segment: MappedSegment, place: int) -> Frame:
        """Return the frame at a place of a segment."""
        return self.cache.get(segment.key | place) or self.decode(segment, place)

    def decode(self, segment: MappedSegment, place: int) -> Frame:
        """Take a frame from its segment; it must not be in the cache."""
        frame = Frame(segment, place)
        cost = frame.nbytes + self._frame_cost
        if place >= segment.walked:
            cost += segment.walk_over(frame)
        frame.cost = cost
        self.decodes += 1
        cache = self.cache
        cache[segment.key | place] = frame
        room = self._cache_room - cost
        while room < 0 and len(cache) > 1:
            room += cache.popitem(last=False)[1].cost
        self._cache_room = room
        return frame

    def segment_at(self, position: int) -> MappedSegment:
        """Return the segment where reading from a position starts; the oldest if that was removed."""
        while True:
            names = self._names()
            # The last that starts ahead of the row, because marks at its end may stand ahead of it too.
            ahead = [name for name in names if name.position < position]
            try:
                return self.open(ahead[-1] if ahead else names[0])
            except FileNotFoundError:
                continue  # removed since it was listed

    def segment_at_arrival(self, arrival: int) -> MappedSegment:
        """Return the segment with the first frame that arrived then or later, or that ends just before it."""
        while True:
            names = self._names()
            low, high = 0, len(names) - 1
            try:
                while low < high:
                    middle = (low + high + 1) // 2
                    if read_info(names[middle].within(self.path)).arrival < arrival:
                        low = middle
                    else:
                        high = middle - 1
                return self.open(names[low])
            except FileNotFoundError:
                continue

    def segment_behind(self, segment: MappedSegment, position: int) -> MappedSegment:
        """Return the segment that follows a sealed one which ended at a position, or the oldest one left."""
        try:
            return self.open(SegmentName(segment.info.serial + 1, position))
        except FileNotFoundError:
            pass
        while True:
            behind = [name for name in self._names() if name.serial > segment.info.serial]
            if not behind:
                # A segment is sealed when the next one is there: that one was lost with the power.
                raise LogCorruptError(
                    segment.file, "the segment is sealed and none follows; open the log with its writer"
                )
            try:
                return self.open(behind[0])
            except FileNotFoundError:
                continue

    def open(self, name: SegmentName) -> MappedSegment:
        """Map a segment, or return the map that is there; FileNotFoundError if it was removed."""
        segment = self._segments.get(name.serial)
        if segment is None:
            segment = self._segments[name.serial] = MappedSegment(self.path, name, self.layout)
        return segment

    def release_removed(self) -> None:
        """Drop cached frames of segments that retention removed, so that the disk gets its space back."""
        self.shared.clear()
        oldest = self._names()[0].serial << 48
        for key in [key for key in self.cache if key < oldest]:
            self._cache_room += self.cache.pop(key).cost

    def _newest(self) -> MappedSegment:
        tail = self._tail
        while tail.sealed:
            tail = self._tail = self.segment_behind(tail, tail.end)
        return tail

    def _names(self) -> list[SegmentName]:
        names = list_segments(self.path)
        if not names:
            raise LogMissingError(self.path, "the log has no segment; open it with its writer first")
        return names
