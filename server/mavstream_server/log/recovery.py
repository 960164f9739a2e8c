"""Recovery of a log when it is opened: verifies its last segment and finds incomplete writes."""

from __future__ import annotations

import errno
import mmap
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Ints
from mavstream_server.log.errors import LogCorruptError
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.layout import (
    CRC_FROM,
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    FrameKind,
    Header,
    Layout,
)
from mavstream_server.log.format.segment import (
    COMMITTED,
    HEADER_BYTES,
    SegmentName,
    list_segments,
    parse_info,
)
from mavstream_server.log.format.texts import decode_texts
from mavstream_server.log.state import LogState


class Recovered(NamedTuple):
    """The complete frames of a segment, and the bytes that follow them."""

    name: SegmentName
    length: int
    """The byte offset at which the last complete frame ends."""
    cut_bytes: int
    """Bytes after it: torn, or written and never committed."""


def remove_incomplete(path: Path) -> list[Path]:
    """Remove incomplete files of segments that never got a row; return them."""
    dropped = [draft for draft in path.glob("*.new") if draft.is_file()]
    for name in reversed(list_segments(path)):
        file = name.within(path)
        with file.open("rb", buffering=0) as stream:
            # After power loss a name can be on disk without its data: the file is empty, or all zeros.
            if any(stream.read(HEADER_BYTES) or b""):
                break
        dropped.append(file)
    for file in dropped:
        file.unlink()
    return dropped


def recover(path: Path, layout: Layout, state: LogState, coder: SegmentCoder) -> Recovered | None:
    """Replay the last segment into state and coder; return None if there is no segment."""
    names = list_segments(path)
    if not names:
        return None
    file = names[-1].within(path)
    with file.open("rb", buffering=0) as stream:
        # Not closed explicitly: the map is freed with its last view, which an exception may still hold.
        view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        words = view[: min(len(view), HEADER_BYTES) & ~7].cast("q")
        parse_info(file, words)
        committed = words[COMMITTED]
        length = _scan(file, view[: min(committed, len(view)) & ~7], layout, state, coder)
        tail = max(committed, _last_written(stream.fileno(), committed, len(view)))
    return Recovered(names[-1], length, tail - length)


def _scan(file: Path, view: memoryview, layout: Layout, state: LogState, coder: SegmentCoder) -> int:
    """Replay the complete frames; return the byte offset at which they end."""
    offset = HEADER_BYTES
    words: Ints = np.frombuffer(view, np.int64)
    while (header := _complete_frame(view, offset)) is not None:
        if header.delta:
            coder.load(decode_texts(view, offset + header.delta))
        _replay(header, words[offset // 8 : (offset + header.length) // 8], layout, state)
        offset += header.length
    if offset == HEADER_BYTES:
        raise LogCorruptError(
            file,
            "expected a snapshot frame after the segment's header, got no complete frame; "
            "restore the file, or move it away to continue from the segment before it",
        )
    return offset


def _complete_frame(view: memoryview, offset: int) -> Header | None:
    if offset + FRAME_BYTES > len(view):
        return None
    header = Header._make(FRAME.unpack_from(view, offset))
    length = header.length
    if header.magic != FRAME_MAGIC or not FRAME_BYTES <= length <= len(view) - offset or length % 8:
        return None
    return header if zlib.crc32(view[offset + CRC_FROM : offset + length]) == header.crc else None


def _replay(header: Header, frame: Ints, layout: Layout, state: LogState) -> None:
    """Apply a frame to the state, as the writer did when it wrote the frame."""
    if header.kind == FrameKind.DATA:
        largest, rows = 0, header.rows
        if layout.event_time is not None and rows:
            start = FRAME_BYTES // 8 + layout.column_layouts(rows, header.nulls)[layout.event_time][2]
            largest = int(np.maximum.reduce(frame[start : start + rows]))
        state.rows(header.producer, header.sequence, rows, header.arrival, largest)
    elif header.kind == FrameKind.SNAPSHOT:
        state.restore(header, frame[FRAME_BYTES // 8 :])
    else:
        state.mark(FrameKind(header.kind), header.producer, header.arrival, header.after)


def _last_written(fd: int, start: int, size: int) -> int:
    """Return the end of the last non-zero byte, skipping holes of the sparse file."""
    last = start
    while start < size:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole up to the end
                break
            raise
        stop = os.lseek(fd, start, os.SEEK_HOLE)
        data = os.pread(fd, stop - start, start).rstrip(b"\0")
        if data:
            last = start + len(data)
        start = stop
    return last
