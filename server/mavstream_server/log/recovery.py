"""Opening a log again: what its last segment holds is verified, and what a death left half done is cut."""

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
    """What was found in a segment: its whole frames, and what follows them."""

    name: SegmentName
    length: int
    """Where the last whole frame ends."""
    cut_bytes: int
    """Bytes behind it: torn, or written and never committed."""


def drop_unborn(path: Path) -> list[Path]:
    """Remove what a death or a power loss left of segments that never got a row; return the files."""
    dropped = [draft for draft in path.glob("*.new") if draft.is_file()]
    for name in reversed(list_segments(path)):
        file = name.within(path)
        with file.open("rb", buffering=0) as stream:
            # A name can reach the disk ahead of the data: then the file is empty, or zero throughout.
            if any(stream.read(HEADER_BYTES) or b""):
                break
        dropped.append(file)
    for file in dropped:
        file.unlink()
    return dropped


def recover(path: Path, layout: Layout, state: LogState, coder: SegmentCoder) -> Recovered | None:
    """Bring state and coder to the end of the last segment; None if there is no segment."""
    names = list_segments(path)
    if not names:
        return None
    file = names[-1].within(path)
    with file.open("rb", buffering=0) as stream:
        # Never closed by hand: it goes with its last view, also when an error still holds one.
        view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        words = view[: min(len(view), HEADER_BYTES) & ~7].cast("q")
        parse_info(file, words)
        committed = words[COMMITTED]
        length = _scan(file, view[: min(committed, len(view)) & ~7], layout, state, coder)
        tail = max(committed, _last_written(stream.fileno(), committed, len(view)))
    return Recovered(names[-1], length, tail - length)


def _scan(file: Path, view: memoryview, layout: Layout, state: LogState, coder: SegmentCoder) -> int:
    """Pass over whole frames; return where they end."""
    place = HEADER_BYTES
    words: Ints = np.frombuffer(view, np.int64)
    while (header := _whole_frame(view, place)) is not None:
        if header.delta:
            coder.load(decode_texts(view, place + header.delta))
        _replay(header, words[place // 8 : (place + header.length) // 8], layout, state)
        place += header.length
    if place == HEADER_BYTES:
        raise LogCorruptError(
            file,
            "the segment has a header and not one whole frame; the state it started from is lost; "
            "restore the file, or move it away to go on from the segment before it",
        )
    return place


def _whole_frame(view: memoryview, place: int) -> Header | None:
    if place + FRAME_BYTES > len(view):
        return None
    header = Header._make(FRAME.unpack_from(view, place))
    length = header.length
    if header.magic != FRAME_MAGIC or not FRAME_BYTES <= length <= len(view) - place or length % 8:
        return None
    return header if zlib.crc32(view[place + CRC_FROM : place + length]) == header.crc else None


def _replay(header: Header, frame: Ints, layout: Layout, state: LogState) -> None:
    """Take what the writer took when it wrote the frame."""
    if header.kind == FrameKind.DATA:
        largest, rows = 0, header.rows
        if layout.event_time is not None and rows:
            start = FRAME_BYTES // 8 + layout.places(rows, header.nulls)[layout.event_time][2]
            largest = int(np.maximum.reduce(frame[start : start + rows]))
        state.rows(header.producer, header.sequence, rows, header.arrival, largest)
    elif header.kind == FrameKind.SNAPSHOT:
        state.restore(header, frame[FRAME_BYTES // 8 :])
    else:
        state.mark(FrameKind(header.kind), header.producer, header.arrival, header.after)


def _last_written(fd: int, start: int, size: int) -> int:
    """Return where the last byte that is not zero ends, looking only at what is not a hole."""
    last = start
    while start < size:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            raise
        stop = os.lseek(fd, start, os.SEEK_HOLE)
        data = os.pread(fd, stop - start, start).rstrip(b"\0")
        if data:
            last = start + len(data)
        start = stop
    return last
