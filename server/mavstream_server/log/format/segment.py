"""Segment files: names, headers, and the segment that is being written."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from mavstream_server.core.storage import failpoints
from mavstream_server.log.errors import LogCorruptError

SEGMENT_MAGIC = int.from_bytes(b"MvStrLog", "little")
SEGMENT_VERSION = 2
"""The version that is written. Version 1 differs in the texts of frames; both are read."""
_READABLE = (1, SEGMENT_VERSION)

# Words of the header, 8 bytes each. COMMITTED, END and SEALED change: the writer stores them through a memory
# map, and readers load them through theirs. COMMITTED is stored after the frames that it covers, END after
# COMMITTED, so that neither is ever ahead of the data. INFO_CRC covers the words before COMMITTED. STATE_CRC
# covers the three that change, and is 0 while the segment is being written. Both are 0 in segments that
# releases without these checksums wrote.
MAGIC, VERSION, SERIAL, POSITION, ARRIVAL, OFFSET, COMMITTED, END, SEALED, INFO_CRC, STATE_CRC = range(11)
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


def info_checksum(words: Sequence[int]) -> int:
    """Return the checksum of the words that never change."""
    return crc32(encode_words(words[:COMMITTED]))


def state_checksum(words: Sequence[int]) -> int:
    """Return the checksum of the words that change while the segment is written."""
    return crc32(encode_words(words[COMMITTED:INFO_CRC]))


def encode_words(words: Sequence[int]) -> bytes:
    """Return words of a header as they are in the file."""
    return b"".join([word.to_bytes(8, "little", signed=True) for word in words])


def header_error(name: SegmentName, words: Sequence[int], size: int) -> str | None:
    """Return what is wrong with the header of a segment file of `size` bytes, or None if it is intact.

    Raises LogCorruptError if the header is that of a later release.
    """
    if len(words) < HEADER_WORDS:
        return f"expected a header of {HEADER_BYTES} bytes, got a file of {size}"
    if words[INFO_CRC] and words[INFO_CRC] != info_checksum(words):
        return "the checksum of the header is wrong"
    if words[MAGIC] != SEGMENT_MAGIC or (words[SERIAL], words[POSITION]) != name:
        return "the header does not belong to a segment of this name"
    if words[VERSION] not in _READABLE:
        expected = f"expected segment version {SEGMENT_VERSION}, got {words[VERSION]}"
        if not words[INFO_CRC]:
            return expected
        raise LogCorruptError(name.within(Path()), f"{expected}; use a matching release")
    if words[STATE_CRC] and words[STATE_CRC] != state_checksum(words):
        return "the checksum of length and end in the header is wrong"
    committed, end, sealed = words[COMMITTED:INFO_CRC]
    if committed < HEADER_BYTES or committed % 8 or end < name.position or sealed not in (0, 1):
        return "length and end in the header are impossible"
    if any(words[STATE_CRC + 1 :]):
        return "the unused part of the header is not empty"
    return None


def info_of(words: Sequence[int]) -> SegmentInfo:
    """Return the constant part of an intact header."""
    return SegmentInfo(*words[SERIAL:COMMITTED])


def read_words(file: Path) -> Sequence[int]:
    """Read the words of a segment file's header; fewer if the file is too short."""
    with file.open("rb", buffering=0) as stream:
        data = stream.read(HEADER_BYTES) or b""
    return memoryview(data[: len(data) & ~7]).cast("q")


def new_header(info: SegmentInfo, committed: int, end: int, *, sealed: bool = False) -> list[int]:
    """Return the words of a header, as they are while the segment is being written."""
    words = [SEGMENT_MAGIC, SEGMENT_VERSION, *info, committed, end, int(sealed)]
    words += [0] * (HEADER_WORDS - len(words))
    words[INFO_CRC] = info_checksum(words)
    return words


class SegmentFile:
    """The segment that is being written: a sparse file of full size, visible up to its committed length."""

    def __init__(self, path: Path, info: SegmentInfo) -> None:
        self.file = info.name.within(path)
        self.info = info
        self._fd = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(self._fd).st_size < HEADER_BYTES:
                os.ftruncate(self._fd, HEADER_BYTES)
            # The commit word is stored through this map of one page, which has its disk block already: a full
            # disk shows as an error of pwrite, never as a SIGBUS on a store.
            self.capacity = os.fstat(self._fd).st_size
            self._map = mmap.mmap(self._fd, min(self.capacity, _PAGE))
            self._words = memoryview(self._map)[:HEADER_BYTES].cast("q")
        except BaseException:
            os.close(self._fd)
            raise
        self.length = self._words[COMMITTED]
        self._words[STATE_CRC] = 0

    @classmethod
    def create(
        cls, path: Path, info: SegmentInfo, first_frame: bytes, capacity: int, sync: bool
    ) -> SegmentFile:
        """Create a segment atomically, with its first frame committed."""
        words = new_header(info, HEADER_BYTES + len(first_frame), info.position)
        data = encode_words(words) + first_frame
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
        return cls(path, info)

    @property
    def sealed(self) -> bool:
        """Whether the segment is finished."""
        return self._words[SEALED] == 1

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

    def restore_header(self, end: int) -> bool:
        """Write the header again if it is not what this writer has written; return whether it was wrong."""
        expected, words = new_header(self.info, self.length, end), self._words
        if words == memoryview(encode_words(expected)).cast("q"):
            return False
        for index, word in enumerate(expected):
            words[index] = word
        return True

    def truncate(self, length: int, end: int, capacity: int) -> None:
        """Truncate to a length (bytes), committed or not, and extend the file to a capacity again."""
        self.commit(length, end)
        os.ftruncate(self._fd, length)
        self.capacity = -(-max(capacity, length) // _PAGE) * _PAGE
        os.ftruncate(self._fd, self.capacity)

    def seal(self) -> None:
        """Mark the segment as finished and free its unused capacity."""
        failpoints.hit("log.seal.before")
        os.ftruncate(self._fd, self.length)
        self.capacity = self.length
        self._words[SEALED] = 1
        failpoints.hit("log.seal.after")

    def sync(self) -> None:
        """Sync everything that was committed to disk."""
        failpoints.hit("log.fsync.before")
        os.fdatasync(self._fd)
        failpoints.hit("log.fsync.after")

    def close(self) -> None:
        """Close the file and its map."""
        self._words[STATE_CRC] = state_checksum(self._words)
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
