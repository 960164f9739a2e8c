"""Reading a log: maps segments while they are needed and caches decoded frames for all cursors."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from weakref import WeakValueDictionary

from mavstream_server.core.storage.damage import DamageListener, log_damage
from mavstream_server.log.cursor import Cursor
from mavstream_server.log.errors import LogCorruptError, LogMissingError
from mavstream_server.log.format.description import LogDescription, load_description
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import Layout
from mavstream_server.log.format.layouts import Layouts
from mavstream_server.log.format.segment import COMMITTED, SEALED, SegmentName, list_segments
from mavstream_server.log.headers import read_header
from mavstream_server.log.mapped import MappedSegment
from mavstream_server.log.shared_reads import SharedReads

# The bytes of a decoded frame's Python objects, besides its data: the frame, and the views of each column.
_FRAME_COST = 600
_COLUMN_COST = 350


class LogReader:
    """The state that all cursors of a process on one log share; the writer may be in another process.

    Not thread-safe. `decodes` counts the frames that were decoded from the files.
    """

    def __init__(
        self, path: Path, cache_bytes: int = 32 << 20, on_damage: DamageListener = log_damage
    ) -> None:
        """`on_damage` is called for damaged frames, when one of them would be read for the first time."""
        self.path = path
        self._layouts = Layouts(load_description(path))
        self._described = 0  # the last segment that the description is known to hold for
        self.decodes = 0
        self.shared = SharedReads()
        # First in, first out: cursors that keep up share the end of the log, and a cursor far behind would
        # not benefit from a recency order. A dict and a queue take half of the time of an OrderedDict.
        self.cache: dict[int, Frame] = {}
        self._cached: deque[int] = deque()  # the keys, oldest first
        self._cache_room = cache_bytes
        self._frame_cost = _FRAME_COST + _COLUMN_COST * len(self._layouts.description.schema)
        self._on_damage = on_damage
        self._segments: WeakValueDictionary[int, MappedSegment] = WeakValueDictionary()
        self._tail = self.segment_at(1 << 62)
        # The tail's committed bytes and the end of the log when `grown` was last called.
        self._seen = (-1, -1)

    @property
    def description(self) -> LogDescription:
        """The log's description, with the fields that the newest segment has."""
        self._newest()
        return self._layouts.description

    @property
    def end(self) -> int:
        """The position of the next row to be committed."""
        return self._newest().end

    @property
    def begin(self) -> int:
        """The position of the first retained row."""
        return self._names()[0].position

    @property
    def begin_of_columns(self) -> int:
        """The position of the first retained row that has the present columns."""
        return self.begin

    @property
    def end_offset(self) -> int:
        """Bytes of the log up to its end, counted since it was created."""
        tail = self._newest()
        return tail.info.offset + tail.refresh()

    @property
    def watermark(self) -> int:
        """The watermark (us) after the last committed frame."""
        return self._newest().watermark

    def grown(self) -> bool:
        """Return whether anything was committed since the last call; cheap, called often."""
        words, (seen, before) = self._tail.words, self._seen
        if words[COMMITTED] == seen and words[SEALED] != 1 and self._tail.header_error is None:
            return False
        tail = self._newest()
        committed = tail.refresh()
        self._seen = committed, tail.info.offset + committed
        return self._seen[1] != before

    @property
    def mapped(self) -> int:
        """How many segments are mapped."""
        return len(self._segments)

    def cursor(self, position: int | None = None) -> Cursor:
        """Return a cursor at a position, by default at the end."""
        return Cursor(self, self.end if position is None else position)

    def frame(self, segment: MappedSegment, offset: int) -> Frame:
        """Return the frame at a byte offset of a segment; raises FrameDamaged."""
        return self.cache.get(segment.key | offset) or self.decode(segment, offset)

    def decode(self, segment: MappedSegment, offset: int) -> Frame:
        """Decode a frame of a segment and cache it; it must not be in the cache. Raises FrameDamaged."""
        if offset >= segment.trusted and not segment.is_new(offset):
            segment.check(offset)
        frame = Frame(segment, offset)
        nbytes = frame.nbytes
        cost = nbytes + self._frame_cost
        scanned = segment.scanned
        if offset == scanned and offset < segment.next_entry and not frame.delta:
            segment.scanned = offset + nbytes  # what `scan_over` does for most frames
        elif offset >= scanned:
            cost += segment.scan_over(frame)
        frame.cost = cost
        self.decodes += 1
        key = segment.key | offset
        self.cache[key] = frame
        self._cached.append(key)
        self._cache_room -= cost
        # One out for one in: many at a time would make the garbage collector run more often.
        while self._cache_room < 0 and len(self._cached) > 1:
            self._cache_room += self.cache.pop(self._cached.popleft()).cost
        return frame

    def segment_at(self, position: int) -> MappedSegment:
        """Return the segment from which to read a position; the oldest one if that was removed."""
        while True:
            names = self._names()
            # The last one that starts before the row, because marks at its end may directly precede the row.
            before = [name for name in names if name.position < position]
            try:
                return self.open(before[-1] if before else names[0])
            except FileNotFoundError:
                continue  # removed since it was listed

    def segment_at_arrival(self, arrival: int) -> MappedSegment:
        """Return the segment from which to read rows that arrived at or after a time (ns)."""
        while True:
            names = self._names()
            low, high = 0, len(names) - 1
            try:
                while low < high:
                    middle = (low + high + 1) // 2
                    if read_header(self.path, names[middle]).info.arrival < arrival:
                        low = middle
                    else:
                        high = middle - 1
                return self.open(names[low])
            except FileNotFoundError:
                continue

    def segment_after(self, segment: MappedSegment, position: int) -> MappedSegment:
        """Return the segment after a sealed one that ended at a position, or the oldest retained one."""
        try:
            return self.open(SegmentName(segment.info.serial + 1, position))
        except FileNotFoundError:
            pass
        while True:
            following = [name for name in self._names() if name.serial > segment.info.serial]
            if not following:
                # A segment is sealed after the next one was created, so that one was lost by power loss.
                raise LogCorruptError(
                    segment.file,
                    "the segment is sealed and none follows; open the log with its writer to repair it",
                )
            try:
                return self.open(following[0])
            except FileNotFoundError:
                continue

    def open(self, name: SegmentName) -> MappedSegment:
        """Return a segment, mapping it if necessary; raise FileNotFoundError if it was removed."""
        segment = self._segments.get(name.serial)
        if segment is None:
            segment = self._segments[name.serial] = MappedSegment(
                self.path, name, self._layout_of(name), self._on_damage
            )
        return segment

    def _layout_of(self, name: SegmentName) -> Layout:
        """Return the layout of a segment that exists: the description says since when each field is there."""
        if name.serial > self._described:
            self._layouts.update(load_description(self.path))
            self._described = name.serial
        return self._layouts.of(name.serial)

    def release_removed(self) -> None:
        """Drop cached frames of segments that retention removed, so that their disk space is freed."""
        self.shared.clear()
        oldest = self._names()[0].serial << 48
        for key in [key for key in self._cached if key < oldest]:
            self._cache_room += self.cache.pop(key).cost
        self._cached = deque(key for key in self._cached if key >= oldest)

    def close(self) -> None:
        """Close the files, even if cursors still refer to them; the reader cannot be used any more."""
        self.shared.clear()
        self.cache.clear()
        self._cached.clear()
        for segment in list(self._segments.values()):
            segment.close()

    def _newest(self) -> MappedSegment:
        tail = self._tail
        if tail.header_error is not None:
            tail.refresh()
        while tail.sealed:
            tail = self._tail = self.segment_after(tail, tail.end)
        return tail

    def _names(self) -> list[SegmentName]:
        names = list_segments(self.path)
        if not names:
            raise LogMissingError(self.path, "the log has no segment; open it with its writer first")
        return names
