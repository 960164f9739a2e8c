"""Headers of segments: read, or rebuilt from name, frames and neighbours if they are damaged."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mavstream_server.core.storage.damage import Damage
from mavstream_server.log.format.checks import IntactFrame, examine, intact_header
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.log.format.segment import (
    ARRIVAL,
    END,
    HEADER_BYTES,
    OFFSET,
    STATE_CRC,
    SegmentInfo,
    SegmentName,
    header_error,
    info_of,
    list_segments,
    new_header,
    read_words,
    state_checksum,
)


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    words: Sequence[int]
    """As in the file; rebuilt if they are damaged there."""
    damage: Damage | None
    """What is wrong with the header in the file."""

    @property
    def info(self) -> SegmentInfo:
        """The constant part."""
        return info_of(self.words)

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.words[END]


def read_header(path: Path, name: SegmentName) -> SegmentHeader:
    """Return the header of a segment in a log's directory."""
    file = name.within(path)
    words = read_words(file)
    error = header_error(name, words, file.stat().st_size)
    if error is None:
        return SegmentHeader(words, None)
    return SegmentHeader(rebuild_header(path, name, map_file(file)), header_damage(file, name, error))


def header_damage(file: Path, name: SegmentName, error: str) -> Damage:
    """Return the damage of a header: no row is lost with it."""
    return Damage(file, 0, HEADER_BYTES, name.position, name.position, error)


def map_file(file: Path) -> memoryview:
    """Return the content of a file, mapped into memory.

    It is not closed explicitly: the map is freed with its last view, which an exception may still hold.
    """
    with file.open("rb", buffering=0) as stream:
        if not file.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


class _Extent(NamedTuple):
    """What the frames of a segment tell about it."""

    length: int
    """The byte offset behind the last frame."""
    end: int
    """The position after the last row."""
    arrival: int | None
    """The arrival time (ns) of the first intact frame."""


def rebuild_header(path: Path, name: SegmentName, view: memoryview) -> list[int]:
    """Return the words of a damaged header: what they were, as far as it can be known."""
    names = list_segments(path)
    before = [one for one in names if one.serial < name.serial]
    behind = [one for one in names if one.serial > name.serial]
    length, end, arrival = _extent(name, view, finished=bool(behind))
    if behind and behind[0].serial == name.serial + 1:
        end = behind[0].position
    if arrival is None:
        arrival = _arrival(path, name, behind)
    info = SegmentInfo(*name, arrival, _offset(path, before, behind, length))
    words = new_header(info, length, end, sealed=bool(behind))
    words[STATE_CRC] = state_checksum(words)
    return words


def _extent(name: SegmentName, view: memoryview, *, finished: bool) -> _Extent:
    size, written = len(view) & ~7, len(bytes(view).rstrip(b"\0"))
    offset, position = HEADER_BYTES, name.position
    snapshot = intact_header(view, offset, size)
    arrival = None if snapshot is None else snapshot.arrival
    while offset < written:
        found = examine(view, offset, size, position)
        if isinstance(found, IntactFrame):
            header = found.header
            offset += header.length
            position = header.position + (header.rows if header.kind == FrameKind.DATA else 0)
            arrival = header.arrival if arrival is None else arrival
        elif found.stop_position is not None:
            offset, position = found.stop, found.stop_position
        else:
            # Nothing intact follows: in the last segment it may be an incomplete write.
            offset = -(-written // 8) * 8 if finished else offset
            break
    return _Extent(offset, position, arrival)


def _arrival(path: Path, name: SegmentName, behind: Sequence[SegmentName]) -> int:
    """Return an upper bound of the arrival time of a segment without intact frames.

    Retention keeps the segment before it until then.
    """
    known = (_intact_words(path, one) for one in behind)
    return next(
        (words[ARRIVAL] for words in known if words is not None), name.within(path).stat().st_mtime_ns
    )


def _offset(path: Path, before: Sequence[SegmentName], behind: Sequence[SegmentName], length: int) -> int:
    """Return the bytes of the log before a segment, counted from the next segment with an intact header."""
    between = 0
    for name in reversed(before):
        between += name.within(path).stat().st_size
        words = _intact_words(path, name)
        if words is not None:
            return words[OFFSET] + between
    ahead = length
    for name in behind:
        words = _intact_words(path, name)
        if words is not None:
            return max(words[OFFSET] - ahead, 0)
        ahead += name.within(path).stat().st_size
    return between


def _intact_words(path: Path, name: SegmentName) -> Sequence[int] | None:
    file = name.within(path)
    words = read_words(file)
    return words if header_error(name, words, file.stat().st_size) is None else None
