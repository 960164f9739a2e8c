"""Segment files: names, headers, and the segment that is being written."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mavstream_server.core import failpoints
from mavstream_server.log.errors import LogCorruptError

SEGMENT_MAGIC = int.from_bytes(b"MvStrLog", "little")
SEGMENT_VERSION = 2
"""The version that is written. Version 1 differs in the texts of frames; both are read."""
_READABLE = (1, SEGMENT_VERSION)

# Words of the header, 8 bytes each. The last three change: the writer stores them through a memory map, and
# readers load them through theirs. COMMITTED is stored after the frames that it covers, END after COMMITTED,
# so that neither is ever ahead of the data.
MAGIC, VERSION, SERIAL, POSITION, ARRIVAL, OFFSET, COMMITTED, END, SEALED = range(9)
HEADER_WORDS = 16
HEADER_BYTES = 8 * HEADER_WORDS

_NAME = re.compile(r"(\d{20})-(\d{10})\.segment")
_PAGE = mmap.PAGESIZE


class SegmentName(NamedTuple):
    """The serial number of a segment and the position of its first row.

    The serial number is needed because a segment that has only marks ends at the position where it began.
    """

    serial: int
    position: int

    def within(self, path: Path) -> Path:
        """Return the file of the segment in a log's directory."""
        return path / f"{self.position:020d}-{self.serial:010d}.segment"


class SegmentInfo(NamedTuple):
    """The constant part of a segment's header."""

    serial: int
    position: int
    arrival: int
    """The arrival time (ns) of the last frame before the segment: no frame in it is earlier."""
    offset: int
    """Bytes of the log before the segment, counted since the log was created."""

    @property
    def name(self) -> SegmentName:
        """The name of the segment's file."""
        return SegmentName(self.serial, self.position)


def list_segments(path: Path) -> list[SegmentName]:
    """Return the segments in a log's directory, oldest first."""
    found = (_NAME.fullmatch(name) for name in os.listdir(path))
    return sorted(SegmentName(int(match[2]), int(match[1])) for match in found if match)


def position_behind(path: Path, serial: int) -> int | None:
    """Return the position after the last row of a segment by the name of the next one; None if it is last."""
    return next((name.position for name in list_segments(path) if name.serial == serial + 1), None)


def parse_info(file: Path, words: Sequence[int]) -> SegmentInfo:
    """Parse the words of a header; raise LogCorruptError if the file is not a segment."""
    if len(words) < HEADER_WORDS or words[MAGIC] != SEGMENT_MAGIC:
        raise LogCorruptError(file, "not a log segment (unknown header); move the file away")
    if words[VERSION] not in _READABLE:
        raise LogCorruptError(
            file, f"expected segment version {SEGMENT_VERSION}, got {words[VERSION]}; use a matching release"
        )
    return SegmentInfo(words[SERIAL], words[POSITION], words[ARRIVAL], words[OFFSET])


def read_words(file: Path) -> Sequence[int]:
    """Read the words of a segment file's header; fewer if the file is too short."""
    with file.open("rb", buffering=0) as stream:
        data = stream.read(HEADER_BYTES) or b""
    return memoryview(data[: len(data) & ~7]).cast("q")


def read_info(file: Path) -> SegmentInfo:
    """Read the header of a segment file."""
    return parse_info(file, read_words(file))


class SegmentFile:
    """The segment that is being written: a sparse file of full size, visible up to its committed length."""

    def __init__(self, path: Path, name: SegmentName) -> None:
        self.file = name.within(path)
        self._fd = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
        try:
            # The commit word is stored through this map of one page, which has its disk block already: a full
            # disk shows as an error of pwrite, never as a SIGBUS on a store.
            self.capacity = os.fstat(self._fd).st_size
            self._map = mmap.mmap(self._fd, min(self.capacity, _PAGE))
            self._words = memoryview(self._map)[:HEADER_BYTES].cast("q")
            self.info = parse_info(self.file, self._words)
        except BaseException:
            os.close(self._fd)
            raise
        self.length = self._words[COMMITTED]

    @classmethod
    def create(
        cls, path: Path, info: SegmentInfo, first_frame: bytes, capacity: int, sync: bool
    ) -> SegmentFile:
        """Create a segment atomically, with its first frame committed."""
        words = [0] * HEADER_WORDS
        words[:4] = SEGMENT_MAGIC, SEGMENT_VERSION, info.serial, info.position
        words[ARRIVAL], words[OFFSET], words[END] = info.arrival, info.offset, info.position
        words[COMMITTED] = HEADER_BYTES + len(first_frame)
        data = b"".join(word.to_bytes(8, "little", signed=True) for word in words) + first_frame
        draft = path / "segment.new"
        failpoints.hit("log.create.before")
        with draft.open("wb", buffering=0) as stream:
            stream.write(data)
            failpoints.hit("log.create.after")
            stream.truncate(-(-max(capacity, len(data), _PAGE) // _PAGE) * _PAGE)
            if sync:
                os.fdatasync(stream.fileno())
        failpoints.hit("log.rename.before")
        draft.rename(info.name.within(path))
        failpoints.hit("log.rename.after")
        if sync:
            sync_directory(path)
        return cls(path, info.name)

    @property
    def sealed(self) -> bool:
        """Whether the segment is finished."""
        return bool(self._words[SEALED])

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted since it was opened."""
        return os.fstat(self._fd).st_nlink == 0

    def write(self, data: bytes, end: int) -> None:
        """Write frames and make them visible together; `end` is the position after them."""
        offset, left = self.length, len(data)
        pwrite = failpoints.pwrite("log.write")
        while (written := pwrite(self._fd, data, offset)) < left:
            data, offset, left = data[written:], offset + written, left - written
        self.commit(offset + written, end)
        failpoints.hit("log.commit.after")

    def commit(self, length: int, end: int) -> None:
        """Make the frames up to a length (bytes) visible; `end` is the position after them."""
        self._words[COMMITTED] = length
        self._words[END] = end
        self.length = length

    def truncate(self, length: int, end: int, capacity: int) -> None:
        """Truncate to a length (bytes), committed or not, and extend the file to a capacity again."""
        self.commit(length, end)
        os.ftruncate(self._fd, length)
        self.capacity = -(-max(capacity, length) // _PAGE) * _PAGE
        os.ftruncate(self._fd, self.capacity)

    def seal(self) -> None:
        """Mark the segment as finished and free its unused capacity."""
        failpoints.hit("log.seal.before")
        self._words[SEALED] = 1
        os.ftruncate(self._fd, self.length)
        self.capacity = self.length
        failpoints.hit("log.seal.after")

    def sync(self) -> None:
        """Sync everything that was committed to disk."""
        failpoints.hit("log.fsync.before")
        os.fdatasync(self._fd)
        failpoints.hit("log.fsync.after")

    def close(self) -> None:
        """Close the file and its map."""
        self._words.release()
        self._map.close()
        os.close(self._fd)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
