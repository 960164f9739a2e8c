"""Segments for readers: frames are verified, and dictionaries and index are filled in one pass over them."""

from __future__ import annotations

import time
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.core.storage.damage import Damage, DamageListener
from mavstream_server.log.checked_files import CHECKSUM, REPAIRED, TEXTS, DamagedFrames, checked_file
from mavstream_server.log.errors import FrameDamaged
from mavstream_server.log.format.checks import CHECKED_FIELDS, IntactFrame, examine, intact_header
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import (
    CRC_FROM,
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    Header,
    Layout,
)
from mavstream_server.log.format.segment import HEADER_BYTES, SegmentName, position_behind
from mavstream_server.log.format.segment_texts import SegmentTexts
from mavstream_server.log.format.texts import decode_texts, recover_texts
from mavstream_server.log.headers import header_damage
from mavstream_server.log.segment_map import SegmentMap
from mavstream_server.log.sparse_index import FrameStep, SparseIndex

# What a map costs: an open file and kernel memory. Counted, so that a cache of tiny segments holds few.
_MAP_COST = 1 << 18
# The index of a frame's arrival time among the words of its header.
_ARRIVAL = 4
_NEW = 60_000_000_000  # ns
# So many bytes are verified at a time: small frames cost less together than one by one.
_VERIFY_BYTES = 1 << 20


class MappedSegment(SegmentMap):
    """The committed frames of one segment; `first` is the byte offset of the first frame after the snapshot.

    The map and the dictionaries live as long as the segment, or a frame of it, is referenced. Frames are
    verified before they are first used; `on_damage` is called for damage that was not known before.
    """

    __slots__ = (
        "__weakref__",
        "_checked",
        "_committed_before",
        "_index",
        "_newest",
        "_on_damage",
        "_path",
        "damaged",
        "dictionaries",
        "first",
        "key",
        "layout",
        "next_entry",
        "scanned",
        "snapshot",
        "texts",
        "trusted",
        "verified",
    )

    def __init__(self, path: Path, name: SegmentName, layout: Layout, on_damage: DamageListener) -> None:
        super().__init__(path, name)
        self._path = path
        self._on_damage = on_damage
        self.layout = layout
        self._checked = checked_file(self.status)
        if self.header_error is not None and not self._checked.header_reported:
            self._checked.header_reported = True
            on_damage(header_damage(self.file, name, self.header_error))
        self.damaged = self._checked.damaged
        """Damaged frames among those that were verified, by byte offset."""
        self.key = self.info.serial << 48
        self.texts = SegmentTexts(layout)
        self.dictionaries = self.texts.dictionaries
        # Frames behind it are written while the segment is mapped.
        self._committed_before = self.limit
        self.verified = max(self._checked.until, HEADER_BYTES)
        """Frames before this byte offset were verified."""
        self.trusted = 0
        """Frames before this byte offset need no check; 0 if any frame is known to be damaged."""
        snapshot = intact_header(self.view, HEADER_BYTES, self.limit)
        if snapshot is None:
            # Read on at the next intact frame; the cursor meets the damage where the first frame would be.
            self.first = HEADER_BYTES
            self.snapshot = self._missing_snapshot()
        else:
            self.first = HEADER_BYTES + snapshot.length
            self.snapshot = snapshot
            self.verified = max(self.verified, self.first)
        # Dictionaries and index are complete for the frames before this byte offset.
        self.scanned = self.first
        # The first frame at or behind this byte offset gets the next entry of the index.
        self.next_entry = 0
        self._index = SparseIndex(self.first)
        # The byte offset behind the newest frame that `watermark` has seen, and the watermark there.
        self._newest = (self.first, self.snapshot.after)

    @property
    def watermark(self) -> int:
        """The watermark (us) after the last committed frame."""
        limit, (offset, watermark) = self.refresh(), self._newest
        if offset >= limit:
            return watermark
        offset = max(offset, self._index.last)
        unpack, view = FRAME.unpack_from, self.view
        while offset < limit:
            header = unpack(view, offset)
            length = header[5]
            if header[0] != FRAME_MAGIC or not FRAME_BYTES <= length <= limit - offset:
                # Damaged: the last frame is found by verifying all of them.
                last = self.offset_before(limit)
                if last is not None and last not in self.damaged:
                    watermark = unpack(view, last)[13]
                offset = limit
                break
            watermark = header[13]
            offset += length
        self._newest = offset, watermark
        return watermark

    def _missing_snapshot(self) -> Header:
        """Return what is known of a damaged snapshot."""
        info, damaged = self.info, self._damage(HEADER_BYTES)
        known = {"position": info.position, "arrival": info.arrival, "after": damaged.watermark}
        return Header(**dict.fromkeys(Header._fields, 0) | known | {"max_before": damaged.max_time})

    # Verification

    def is_new(self, offset: int) -> bool:
        """Whether the frame at a byte offset has just been written and is read for the first time.

        It comes from memory then, not from a disk, and a checksum of it would tell nothing.
        """
        if offset < self._committed_before or offset < self.scanned:
            return False
        arrival = int(self.arrays[0][(offset >> 3) + _ARRIVAL])
        return -_NEW < time.time_ns() - arrival < _NEW

    def check(self, offset: int) -> None:
        """Verify the frame at a byte offset; raise FrameDamaged if it, or one of its texts, is damaged."""
        if offset >= self.verified:
            self.verify(offset)
        if not self.damaged:
            self.trusted = self.verified
            return
        damaged = self.damaged.get(offset)
        if damaged is None:
            frame = Frame(self, offset)
            self._scan(offset + frame.nbytes)
            if not self.texts.doubtful or not frame.rows or self.texts.known(frame):
                return
            damaged = DamagedFrames.of(frame)
            self._record(offset, damaged, TEXTS)
        raise FrameDamaged(damaged)

    def verify(self, until: int) -> None:
        """Verify the frames up to a byte offset, and some behind it; damage is recorded, not raised."""
        view, limit, offset = self.view, self.limit, self.verified
        unpack = CHECKED_FIELDS.unpack_from
        until, last = min(until + _VERIFY_BYTES, limit), limit - FRAME_BYTES
        while offset < until:
            magic, crc, length = unpack(view, offset) if offset <= last else (0, 0, 0)
            stop = offset + length
            if (
                magic != FRAME_MAGIC
                or length < FRAME_BYTES
                or stop > limit
                or crc32(view[offset + CRC_FROM : stop]) != crc
            ):
                self.verified = offset
                # Checked again, because the writer may have been about to write it.
                header = intact_header(view, offset, limit)
                stop = self._damage(offset).stop_offset if header is None else offset + header.length
            offset = stop
        self.verified = self._checked.until = max(offset, self._checked.until)

    def _damage(self, offset: int) -> DamagedFrames:
        """Return the damage at a byte offset; it is recorded when it is found."""
        known = self.damaged.get(offset)
        if known is not None:
            return known
        before = self._step_before(offset)
        position = self.info.position if before is None else before.position + before.rows
        found = examine(self.view, offset, self.limit, position)
        assert not isinstance(found, IntactFrame)
        following = intact_header(self.view, found.stop, self.limit)
        stop = found.stop_position
        if stop is None:
            following_segment = position_behind(self._path, self.info.serial)
            stop = self.end if following_segment is None else following_segment
        damaged = DamagedFrames(
            found.stop,
            position,
            max(position, stop),
            self.info.arrival if before is None else before.arrival,
            BEGIN_OF_TIME if following is None else following.before,
            BEGIN_OF_TIME if following is None else following.max_before,
        )
        self._record(offset, damaged, REPAIRED if found.repaired else CHECKSUM)
        return damaged

    def _record(self, offset: int, damaged: DamagedFrames, reason: str) -> None:
        self.damaged[offset] = damaged
        self.trusted = 0
        nbytes = damaged.stop_offset - offset
        self._on_damage(Damage(self.file, offset, nbytes, damaged.start, damaged.stop, reason))

    # Dictionaries and index

    def scan_over(self, frame: Frame) -> int:
        """Load the dictionary entries that a frame's columns need; return the memory used, in bytes.

        The frame must not start before `scanned`. The first frame of a segment also accounts for the map.
        """
        offset, cost = frame.byte_offset, 0
        if self.scanned == self.first:
            cost = _MAP_COST
        if offset > self.scanned:
            cost += self._scan(offset)
        if frame.delta or offset >= self.next_entry:
            return cost + self._scan_frame(
                offset, frame.nbytes, frame.first_position, frame.arrival, frame.delta
            )
        self.scanned = offset + frame.nbytes
        return cost

    def _scan_frame(self, offset: int, length: int, position: int, arrival: int, delta: int) -> int:
        cost = 0
        if delta:
            cost = self.texts.load(decode_texts(self.view, offset + delta))
        if offset >= self.next_entry:
            self.next_entry = self._index.add(offset, position, arrival)
        self.scanned = offset + length
        return cost

    def _scan(self, until: int) -> int:
        if until > self.verified:
            self.verify(until)
        unpack, view, offset, cost = FRAME.unpack_from, self.view, self.scanned, 0
        while offset < until:
            damaged = self.damaged.get(offset) if self.damaged else None
            if damaged is None:
                header = unpack(view, offset)
                cost += self._scan_frame(offset, header[5], header[6], header[7], header[16])
                offset += header[5]
            else:
                cost += self._scan_damage(offset, damaged)
                offset = damaged.stop_offset
        return cost

    def _scan_damage(self, offset: int, damaged: DamagedFrames) -> int:
        """Load the texts that can be recovered from damaged frames."""
        self.texts.doubtful = bool(self.layout.text_fields)
        cost = self.texts.load(recover_texts(self.view, offset, damaged.stop_offset))
        return cost + self._scan_frame(
            offset, damaged.stop_offset - offset, damaged.start, damaged.arrival, delta=0
        )

    def _step(self, offset: int) -> FrameStep:
        """Return the frame, or damaged frames, at a byte offset."""
        damaged = self.damaged.get(offset)
        if damaged is not None:
            stop_offset, start, stop, arrival, _, _ = damaged
            return FrameStep(start, stop - start, arrival, stop_offset, damaged=True)
        header = FRAME.unpack_from(self.view, offset)
        return FrameStep(header[6], header[4], header[7], offset + header[5], damaged=False)

    def _step_before(self, offset: int) -> FrameStep | None:
        before = self.offset_before(offset)
        return None if before is None else self._step(before)

    def find_position(self, position: int) -> int:
        """Return the byte offset of the frame with a row, or of marks directly before it, or the limit."""
        limit = self.refresh()
        if position <= self.info.position:
            return self.first
        self._scan(limit)
        return self._index.find_position(position, limit, self._step)

    def find_arrival(self, arrival: int) -> int:
        """Return the byte offset of the first frame that ends at or after an arrival time, or the limit."""
        limit = self.refresh()
        self._scan(limit)
        return self._index.find_arrival(arrival, limit, self._step)

    def offset_before(self, offset: int) -> int | None:
        """Return the byte offset of the frame that ends at an offset, or None if there is none."""
        if offset <= self.first:
            return None
        self._scan(offset)
        return self._index.find_before(offset, self._step)
