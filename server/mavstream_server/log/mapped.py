"""A segment as readers see it: mapped once, passed over once for its texts and a coarse index."""

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

# One entry of the index per so many bytes: a seek walks at most this far.
_INDEX_BYTES = 1 << 16
# A map is an open file and some kernel memory: counted so that a cache over tiny segments holds few.
_MAP_COST = 1 << 18


class MappedSegment:
    """The committed frames of one segment. `first` is the place of the first frame behind the snapshot.

    The map, and the texts, live as long as someone holds the segment or a frame of it.
    """

    __slots__ = (
        "__weakref__",
        "_arrivals",
        "_indexed",
        "_places",
        "_positions",
        "arrays",
        "dictionaries",
        "file",
        "first",
        "info",
        "key",
        "layout",
        "limit",
        "snapshot",
        "view",
        "walked",
        "words",
    )

    def __init__(self, path: Path, name: SegmentName, layout: Layout) -> None:
        self.file = name.within(path)
        self.layout = layout
        self._map()
        self.info = parse_info(self.file, self.words)
        self.key = self.info.serial << 48
        # One per string field, by its index in the schema.
        self.dictionaries: list[Dictionary | None] = [
            Dictionary() if index in layout.text_fields else None for index in range(layout.width)
        ]
        self.limit = self.words[COMMITTED]
        self._check_limit()
        self.snapshot = Header._make(FRAME.unpack_from(self.view, HEADER_BYTES))
        self.first = HEADER_BYTES + self.snapshot.length
        # Texts and index are complete for frames ahead of this place.
        self.walked = self.first
        self._indexed = -_INDEX_BYTES
        self._places: list[int] = []
        self._positions: list[int] = []
        self._arrivals: list[int] = []

    def _map(self) -> None:
        with self.file.open("rb", buffering=0) as stream:
            try:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise LogCorruptError(
                    self.file, "the segment is empty; open the log with its writer"
                ) from None
        self.view = memoryview(mapped)
        whole = len(mapped) & ~7
        self.words = self.view[: min(whole, HEADER_BYTES)].cast("q")
        # Columns are slices of these: a quarter of the cost of a frombuffer for each.
        bytes_: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8, whole)
        self.arrays: tuple[npt.NDArray[Any], ...] = tuple(bytes_.view(dtype) for dtype in ITEMS)

    def _check_limit(self) -> None:
        if self.limit > len(self.view):
            # The writer may have given the segment more room since it was mapped.
            self._map()
            if self.limit > len(self.view):
                raise LogCorruptError(
                    self.file,
                    f"{self.limit} bytes are committed, the file has {len(self.view)}; "
                    "open the log with its writer, which cuts it at the last whole frame",
                )

    @property
    def sealed(self) -> bool:
        """Whether nothing will be added; look at `refresh` once more after it has become true."""
        return bool(self.words[SEALED])

    @property
    def end(self) -> int:
        """The position behind the last row."""
        return self.words[END]

    def refresh(self) -> int:
        """Look how far the segment is committed now, and return it.

        One that outgrew its map and whose file was removed meanwhile stays as far as it was: cursors go on to
        the next segment and find the gap.
        """
        committed, known = self.words[COMMITTED], self.limit
        if committed != known:
            self.limit = committed
            try:
                self._check_limit()
            except FileNotFoundError:
                self.limit = known
        return self.limit

    def walk_over(self, frame: Frame) -> int:
        """Load the texts that a frame's columns need, and return what that took in memory.

        The frame must not lie ahead of `walked`. The first of a segment also pays for the map.
        """
        place, cost = frame.place, 0
        if self.walked == self.first:
            cost = _MAP_COST
        if place > self.walked:
            cost += self._walk(place)
        if frame.delta or place - self._indexed >= _INDEX_BYTES:
            return cost + self._pass(place, frame.nbytes, frame.first_position, frame.arrival, frame.delta)
        self.walked = place + frame.nbytes
        return cost

    def _pass(self, place: int, length: int, position: int, arrival: int, delta: int) -> int:
        cost = 0
        if delta:
            for index, texts in decode_texts(self.view, place + delta):
                dictionary = self.dictionaries[index]
                assert dictionary is not None
                cost -= dictionary.nbytes
                dictionary.extend(texts)
                cost += dictionary.nbytes
        if place - self._indexed >= _INDEX_BYTES:
            self._indexed = place
            self._places.append(place)
            self._positions.append(position)
            self._arrivals.append(arrival)
        self.walked = place + length
        return cost

    def _walk(self, until: int) -> int:
        unpack, view, place, cost = FRAME.unpack_from, self.view, self.walked, 0
        while place < until:
            header = unpack(view, place)
            cost += self._pass(place, header[5], header[6], header[7], header[16])
            place += header[5]
        return cost

    def find_position(self, position: int) -> int:
        """Return the place of the frame with that row, or of the first mark just ahead; or the limit."""
        limit = self.refresh()
        if position <= self.info.position:
            return self.first
        self._walk(limit)
        place = self._before(bisect_left(self._positions, position))
        while place < self.limit:
            header = FRAME.unpack_from(self.view, place)
            first, rows = header[6], header[4]
            if first >= position or first + rows > position:
                break
            place += header[5]
        return place

    def find_arrival(self, arrival: int) -> int:
        """Return the place of the first frame of which a part arrived then or later; or the limit."""
        self._walk(self.refresh())
        place = self._before(bisect_left(self._arrivals, arrival))
        while place < self.limit:
            header = FRAME.unpack_from(self.view, place)
            if header[7] >= arrival:
                break
            place += header[5]
        return place

    def place_ahead(self, place: int) -> int | None:
        """Return the place of the frame that ends at a place, or None if none stands ahead of it."""
        if place <= self.first:
            return None
        self._walk(place)
        found = self._before(bisect_left(self._places, place))
        while (behind := found + FRAME.unpack_from(self.view, found)[5]) < place:
            found = behind
        return found

    def _before(self, entry: int) -> int:
        return self._places[entry - 1] if entry else self.first
