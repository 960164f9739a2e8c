"""Recovery of a log when it is opened: verifies its last segment and finds incomplete writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Ints
from mavstream_server.core.storage.damage import Damage
from mavstream_server.log.checked_files import CHECKSUM
from mavstream_server.log.format.checks import DamagedBytes, IntactFrame, intact_header, walk
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.layout import (
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    TRACED,
    FrameKind,
    Header,
    Layout,
)
from mavstream_server.log.format.layouts import Layouts
from mavstream_server.log.format.provenance import decode_provenance, latest_time
from mavstream_server.log.format.segment import (
    COMMITTED,
    END,
    HEADER_BYTES,
    SEALED,
    SegmentFile,
    SegmentInfo,
    SegmentName,
    header_error,
    list_segments,
)
from mavstream_server.log.format.texts import decode_texts
from mavstream_server.log.headers import header_damage, map_file, read_header
from mavstream_server.log.state import LogState

_SECTOR = 512  # bytes


class Recovered(NamedTuple):
    """What was found in the last segment."""

    name: SegmentName
    length: int
    """The byte offset up to which the segment is kept."""
    cut_bytes: int
    """Bytes after it: torn, or written and never committed."""
    damage: list[Damage]
    """A damaged header, and frames that were committed and are not intact; they stay where they are."""
    skipped: bool
    """Whether the segment cannot be continued.

    Its header is damaged, or frames were skipped, now or by a repair: then its texts may be unknown.
    """


def remove_incomplete(path: Path) -> list[Path]:
    """Remove incomplete files of segments that never got a row; return them."""
    dropped = [draft for draft in path.glob("*.new") if draft.is_file()]
    for name in reversed(list_segments(path)):
        file = name.within(path)
        # After power loss a name can be on disk without its data: the file is empty, or all zeros.
        if _last_written(file, 0, file.stat().st_size):
            break
        dropped.append(file)
    for file in dropped:
        file.unlink()
    return dropped


def settle_headers(path: Path) -> tuple[list[SegmentInfo], list[Damage]]:
    """Return the segments of a log, and damaged headers of those before the last one, which are sealed.

    The writer may have died after creating the last segment and before sealing the one before it.
    """
    *before, last = [read_header(path, name) for name in list_segments(path)]
    for header in before:
        if header.damage is None and not header.words[SEALED]:
            segment = SegmentFile(path, header.info)
            segment.seal()
            segment.close()
    damaged = [header.damage for header in before if header.damage is not None]
    return [header.info for header in (*before, last)], damaged


def recover(path: Path, layouts: Layouts, state: LogState, coder: SegmentCoder) -> Recovered | None:
    """Replay the last segment into state and coder; return None if there is no segment.

    An incomplete last write is cut off: it was never acknowledged, or power loss took it. Damage with intact
    frames behind it, or in frames that were written completely, loses its own rows only: the frames behind it
    keep their positions, and so does what is appended next. If the segment's snapshot is damaged, the state
    is that of the segments before. If its header is damaged, all complete frames are taken for committed.
    """
    names = list_segments(path)
    if not names:
        return None
    name = names[-1]
    file = name.within(path)
    view = map_file(file)
    size = len(view) & ~7
    written = _last_written(file, HEADER_BYTES, len(view))
    words = view[: min(size, HEADER_BYTES)].cast("q")
    error = header_error(name, words, len(view))
    if intact_header(view, HEADER_BYTES, size) is None:
        _replay_before(path, names, layouts, state)
    replay = _Replay(file, view, layouts.of(name.serial), state, coder)
    if error is None:
        committed, end = words[COMMITTED], words[END]
        replay.run(min(committed, size), end, truncated=committed > len(view))
        if replay.length < committed or (state.position < end and written > committed):
            # The committed length itself may be damaged: it is stored before the end.
            replay.run(min(-(-written // 8) * 8, size), end, truncated=True)
    else:
        committed = 0
        replay.damage.append(header_damage(file, name, error))
        replay.run(min(-(-written // 8) * 8, size), None, truncated=False)
    cut = max(committed, written, replay.length) - replay.length
    skipped = replay.skipped or error is not None or not replay.intact
    return Recovered(name, replay.length, cut, replay.damage, skipped)


class _Replay:
    """Replays frames of a segment into the state of a log."""

    def __init__(
        self, file: Path, view: memoryview, layout: Layout, state: LogState, coder: SegmentCoder | None
    ) -> None:
        self._file = file
        self._view = view
        self._words: Ints = np.frombuffer(view, np.int64, len(view) // 8)
        self._layout = layout
        self._state = state
        self._coder = coder
        self.length = HEADER_BYTES
        """The byte offset behind the last frame that is kept."""
        self.intact = 0
        """The number of intact frames."""
        self.damage: list[Damage] = []
        self.skipped = False

    def run(self, limit: int, end: int | None, *, truncated: bool) -> None:
        """Replay the frames up to a byte offset.

        `end` is the position after the last committed row, None if it is unknown. `truncated` says that bytes
        at the end are known to be missing, or were never committed.
        """
        for found in walk(self._view, self.length, limit, self._state.position):
            if isinstance(found, IntactFrame):
                self._frame(found)
            elif found.stop_position is None and (
                self._crosses(found.offset) or truncated or is_torn(self._view, found.offset, limit)
            ):
                return
            else:
                self._lose(found, end)

    def _crosses(self, offset: int) -> bool:
        """Replay the frame at a byte offset if it is intact and the limit is inside of it.

        Committed lengths are between frames, so that the limit is wrong, or the frame ends with zeros.
        """
        header = intact_header(self._view, offset, len(self._view) & ~7)
        if header is not None:
            self._frame(IntactFrame(offset, header))
        return header is not None

    def _frame(self, found: IntactFrame) -> None:
        offset, header = found
        if header.delta and self._coder is not None:
            self._coder.load(decode_texts(self._view, offset + header.delta))
        frame = self._words[offset // 8 : (offset + header.length) // 8]
        _replay(header, frame, self._layout, self._state)
        self.length = offset + header.length
        self.intact += 1

    def _lose(self, found: DamagedBytes, end: int | None) -> None:
        """Continue behind damaged frames."""
        state, start = self._state, self._state.position
        following = intact_header(self._view, found.stop, len(self._view))
        most = start + (found.stop - found.offset) // self._layout.row_bytes
        if found.stop_position is not None:
            stop = found.stop_position
        elif end is None:
            stop = most  # no position may be used again
        else:
            stop = end if start <= end <= most else start
        probable = _probable_header(self._view, found, start, stop)
        state.skip(stop, probable, following)
        self.length, self.skipped = found.stop, True
        if found.repaired:
            self.intact += 1
        else:
            nbytes = found.stop - found.offset
            self.damage.append(Damage(self._file, found.offset, nbytes, start, stop, CHECKSUM))


def _replay_before(path: Path, names: Sequence[SegmentName], layouts: Layouts, state: LogState) -> None:
    """Replay the segments before the last one, from the last intact snapshot on."""
    views: list[tuple[SegmentName, memoryview]] = []
    for name in reversed(names[:-1]):
        view = map_file(name.within(path))
        views.append((name, view))
        if intact_header(view, HEADER_BYTES, len(view) & ~7) is not None:
            break
    for (name, view), following in zip(reversed(views), names[len(names) - len(views) :], strict=True):
        replay = _Replay(name.within(path), view, layouts.of(name.serial), state, None)
        replay.run(len(view) & ~7, following.position, truncated=False)
    state.position = max(state.position, names[-1].position)


def is_torn(view: memoryview, offset: int, limit: int) -> bool:
    """Return whether the frames from a byte offset on were written incompletely: their end is missing.

    Disks write whole sectors, and there are zeros where none was written.
    """
    written = len(bytes(view[offset:limit]).rstrip(b"\0"))
    return not written or -(-(offset + written) // _SECTOR) * _SECTOR < limit


def _probable_header(view: memoryview, found: DamagedBytes, start: int, stop: int) -> Header | None:
    """Return the header of a damaged frame if it fits its surroundings: then probably its rows are damaged.

    Its producer's sequence is used: if it were unknown, the producer could not continue.
    """
    if found.stop - found.offset < FRAME_BYTES:
        return None
    header = Header._make(FRAME.unpack_from(view, found.offset))
    fits = (
        header.magic == FRAME_MAGIC
        and header.kind == FrameKind.DATA
        and header.length == found.stop - found.offset
        and (header.position, header.position + header.rows) == (start, stop)
    )
    return header if fits else None


def _replay(header: Header, frame: Ints, layout: Layout, state: LogState) -> None:
    """Apply a frame to the state, as the writer did when it wrote the frame."""
    if header.kind == FrameKind.DATA:
        largest, rows = 0, header.rows
        if layout.event_time is not None and rows:
            start = FRAME_BYTES // 8 + layout.column_layouts(rows, header.nulls)[layout.event_time][2]
            largest = int(np.maximum.reduce(frame[start : start + rows]))
        traced = header.flags == TRACED
        if traced:
            largest = latest_time(decode_provenance(frame, header.length // 8, rows))
        state.rows(header.producer, header.sequence, rows, header.arrival, largest, traced=traced)
    elif header.kind == FrameKind.SNAPSHOT:
        state.restore(header, frame[FRAME_BYTES // 8 :])
    else:
        state.mark(FrameKind(header.kind), header.producer, header.arrival, header.after)


def _last_written(file: Path, start: int, size: int) -> int:
    """Return the end of the last non-zero byte, or `start`; holes of the sparse file are skipped."""
    last = start
    with file.open("rb", buffering=0) as stream:
        fd = stream.fileno()
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


def missing_segments(path: Path) -> list[Damage]:
    """Return the segments that are missing between others, as damage behind the segment before."""
    found: list[Damage] = []
    for name, following in pairwise(list_segments(path)):
        if following.serial != name.serial + 1:
            file = name.within(path)
            start = min(read_header(path, name).end, following.position)
            size = file.stat().st_size
            found.append(Damage(file, size, 0, start, following.position, "the file behind it is missing"))
    return found
