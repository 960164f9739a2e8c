"""Memory-mapped segments for readers, with their dictionaries and a sparse index built in one pass."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.log.errors import LogCorruptError
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import FRAME, ITEMS, Header, Layout
from mavstream_server.log.format.segment import (
    COMMITTED,
    END,
    HEADER_BYTES,
    SEALED,
    SegmentName,
    parse_info,
)
from mavstream_server.log.format.texts import decode_texts

# The index has one entry per this many bytes: a seek scans at most this far.
_INDEX_BYTES = 1 << 16
# What a map costs: an open file and kernel memory. Counted, so that a cache of tiny segments holds few.
_MAP_COST = 1 << 18


class MappedSegment:
    """The committed frames of one segment; `first` is the byte offset of the first frame after the snapshot.

    The map and the dictionaries live as long as the segment, or a frame of it, is referenced.
    """

    __slots__ = (
        "__weakref__",
        "_arrivals",
        "_newest",
        "_offsets",
        "_positions",
        "arrays",
        "dictionaries",
        "file",
        "first",
        "info",
        "key",
        "layout",
        "limit",
        "next_entry",
        "scanned",
        "snapshot",
        "view",
        "words",
    )

    def __init__(self, path: Path, name: SegmentName, layout: Layout) -> None:
        self.file = name.within(path)
        self.layout = layout
        self._map()
        self.info = parse_info(self.file, self.words)
        self.key = self.info.serial << 48
        # One per string field, by index in the schema.
        self.dictionaries: list[Dictionary | None] = [
            Dictionary() if index in layout.text_fields else None for index in range(layout.width)
        ]
        self.limit = self.words[COMMITTED]
        self._check_limit()
        self.snapshot = Header._make(FRAME.unpack_from(self.view, HEADER_BYTES))
        self.first = HEADER_BYTES + self.snapshot.length
        # Dictionaries and index are complete for the frames before this byte offset.
        self.scanned = self.first
        # The first frame at or behind this byte offset gets the next entry of the index.
        self.next_entry = 0
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._arrivals: list[int] = []
        # The byte offset behind the newest frame that `watermark` has seen, and the watermark there.
        self._newest = (self.first, self.snapshot.after)

    def _map(self) -> None:
        with self.file.open("rb", buffering=0) as stream:
            try:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise LogCorruptError(
                    self.file, "the segment is empty; open the log with its writer to repair it"
                ) from None
        self.view = memoryview(mapped)
        whole = len(mapped) & ~7
        self.words = self.view[: min(whole, HEADER_BYTES)].cast("q")
        # Columns are slices of these arrays: a quarter of the cost of a frombuffer for each column.
        bytes_: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8, whole)
        self.arrays: tuple[npt.NDArray[Any], ...] = tuple(bytes_.view(dtype) for dtype in ITEMS)

    def _check_limit(self) -> None:
        if self.limit > len(self.view):
            # The writer may have extended the segment since it was mapped.
            self._map()
            if self.limit > len(self.view):
                raise LogCorruptError(
                    self.file,
                    f"expected {self.limit} committed bytes, got a file of {len(self.view)}; "
                    "open the log with its writer, which truncates it after the last complete frame",
                )

    @property
    def sealed(self) -> bool:
        """Whether the segment is finished; call `refresh` once more after it has become true."""
        return bool(self.words[SEALED])

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.words[END]

    def refresh(self) -> int:
        """Update `limit` to the committed length of the segment, in bytes, and return it.

        If the segment outgrew its map and its file was removed meanwhile, the limit stays as it is: cursors
        continue with the next segment and detect the gap.
        """
        committed, known = self.words[COMMITTED], self.limit
        if committed != known:
            self.limit = committed
            try:
                self._check_limit()
            except FileNotFoundError:
                self.limit = known
        return self.limit

    @property
    def watermark(self) -> int:
        """The watermark (us) after the last committed frame."""
        limit, (offset, watermark) = self.refresh(), self._newest
        if offset >= limit:
            return watermark
        if self._offsets:
            offset = max(offset, self._offsets[-1])
        unpack, view = FRAME.unpack_from, self.view
        while offset < limit:
            header = unpack(view, offset)
            watermark = header[13]
            offset += header[5]
        self._newest = offset, watermark
        return watermark

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
            for index, texts in decode_texts(self.view, offset + delta):
                dictionary = self.dictionaries[index]
                assert dictionary is not None
                cost -= dictionary.nbytes
                dictionary.extend(texts)
                cost += dictionary.nbytes
        if offset >= self.next_entry:
            self.next_entry = offset + _INDEX_BYTES
            self._offsets.append(offset)
            self._positions.append(position)
            self._arrivals.append(arrival)
        self.scanned = offset + length
        return cost

    def _scan(self, until: int) -> int:
        unpack, view, offset, cost = FRAME.unpack_from, self.view, self.scanned, 0
        while offset < until:
            header = unpack(view, offset)
            cost += self._scan_frame(offset, header[5], header[6], header[7], header[16])
            offset += header[5]
        return cost

    def find_position(self, position: int) -> int:
        """Return the byte offset of the frame with a row, or of marks directly before it, or the limit."""
        limit = self.refresh()
        if position <= self.info.position:
            return self.first
        self._scan(limit)
        offset = self._before(bisect_left(self._positions, position))
        while offset < self.limit:
            header = FRAME.unpack_from(self.view, offset)
            first, rows = header[6], header[4]
            if first >= position or first + rows > position:
                break
            offset += header[5]
        return offset

    def find_arrival(self, arrival: int) -> int:
        """Return the byte offset of the first frame that ends at or after an arrival time, or the limit."""
        self._scan(self.refresh())
        offset = self._before(bisect_left(self._arrivals, arrival))
        while offset < self.limit:
            header = FRAME.unpack_from(self.view, offset)
            if header[7] >= arrival:
                break
            offset += header[5]
        return offset

    def offset_before(self, offset: int) -> int | None:
        """Return the byte offset of the frame that ends at an offset, or None if there is none."""
        if offset <= self.first:
            return None
        self._scan(offset)
        found = self._before(bisect_left(self._offsets, offset))
        while (behind := found + FRAME.unpack_from(self.view, found)[5]) < offset:
            found = behind
        return found

    def _before(self, entry: int) -> int:
        return self._offsets[entry - 1] if entry else self.first
