"""Check and repair of a log: verifies every frame of every segment.

A repair saves damaged frames beside the segment and overwrites them with a record of the lost rows, so that
all other rows keep their positions and readers get a gap for the lost ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mavstream_server.checking.findings import Findings
from mavstream_server.core.storage.damage import Damage
from mavstream_server.log import LogError, load_description
from mavstream_server.log.checked_files import CHECKSUM
from mavstream_server.log.format.checks import DamagedBytes, IntactFrame, intact_header, lost_frame, walk
from mavstream_server.log.format.layout import FRAME_BYTES, FrameKind
from mavstream_server.log.format.layouts import Layouts
from mavstream_server.log.format.segment import (
    ARRIVAL,
    COMMITTED,
    END,
    HEADER_BYTES,
    SEALED,
    STATE_CRC,
    SegmentName,
    encode_words,
    header_error,
    list_segments,
    read_words,
    state_checksum,
)
from mavstream_server.log.headers import header_damage, rebuild_header
from mavstream_server.log.recovery import is_torn, missing_segments


def check_log(path: Path, findings: Findings, *, repair: bool) -> None:
    """Check the log in a directory; no process may write it meanwhile."""
    try:
        layouts = Layouts(load_description(path))
    except LogError as error:
        findings.broken(path, error.detail)
        return
    names = list_segments(path)
    for damage in missing_segments(path):
        findings.add(damage)
    for index, name in enumerate(names):
        row_bytes = layouts.of(name.serial).row_bytes
        _Segment(path, names, index, row_bytes, findings, repair).check()


class _Segment:
    """The check of one of a log's segments."""

    def __init__(
        self,
        path: Path,
        names: Sequence[SegmentName],
        index: int,
        row_bytes: int,
        findings: Findings,
        repair: bool,
    ) -> None:
        self._path = path
        self._name = names[index]
        self._row_bytes = row_bytes
        self._file = self._name.within(path)
        self._following = names[index + 1] if index + 1 < len(names) else None
        self._findings = findings
        self._repair = repair
        self._error: str | None = None  # of the header by itself

    def check(self) -> None:
        """Check the header and all frames."""
        self._findings.files += 1
        data = self._file.read_bytes()
        if self._following is None and not any(data):
            return  # never had a row; the next start removes it
        view = memoryview(data)[: len(data) & ~7]
        words = list(read_words(self._file))
        self._error = header_error(self._name, words, len(data))
        limit = self._limit(view, words)
        position = self._frames(view, limit, words)
        self._header(view, limit, words, position)

    def _limit(self, view: memoryview, words: list[int]) -> int:
        """Return the byte offset at which the frames end."""
        if self._error is None and words[COMMITTED] <= len(view):
            behind = bytes(view[words[COMMITTED] :])
            if self._following is None or not any(behind):
                return words[COMMITTED]
        written = -(-len(bytes(view).rstrip(b"\0")) // 8) * 8
        return max(written, rebuild_header(self._path, self._name, view)[COMMITTED])

    def _frames(self, view: memoryview, limit: int, words: list[int]) -> int:
        """Check the frames; return the position after the last row."""
        position = self._name.position
        for found in walk(view, HEADER_BYTES, limit, position):
            if isinstance(found, IntactFrame):
                rows = found.header.rows if found.header.kind == FrameKind.DATA else 0
                self._findings.rows += rows
                position = found.header.position + rows
            elif found.repaired:
                assert found.stop_position is not None
                position = found.stop_position
            elif (
                found.stop_position is None and self._following is None and is_torn(view, found.offset, limit)
            ):
                break  # an incomplete write, which the next start truncates
            else:
                position = self._lost(view, found, words)
        return position

    def _lost(self, view: memoryview, found: DamagedBytes, words: list[int]) -> int:
        start, stop = found.start_position, found.stop_position
        nbytes = found.stop - found.offset
        if stop is None and self._following is not None:
            stop = self._following.position
        elif stop is None:
            # If the end is unknown, no position may be used again.
            most = start + nbytes // self._row_bytes
            end = most if self._error is not None else words[END]
            stop = end if start <= end <= most else start
        done = None
        if self._repair and nbytes >= FRAME_BYTES:
            saved = self._save(view, found)
            self._write(found.offset, lost_frame(view, found, stop))
            done = f"recorded the loss, the bytes are in {saved.name}"
        self._findings.add(Damage(self._file, found.offset, nbytes, start, stop, CHECKSUM), done)
        return stop

    def _header(self, view: memoryview, limit: int, words: list[int], position: int) -> None:
        """Check the header against the name and the frames."""
        reason = self._error or self._contradiction(view, limit, words, position)
        if reason is None:
            return
        done = None
        if self._repair:
            rebuilt = rebuild_header(self._path, self._name, view)
            rebuilt[COMMITTED], rebuilt[END] = limit, position
            rebuilt[STATE_CRC] = state_checksum(rebuilt)
            self._write(0, encode_words(rebuilt))
            done = "rewrote the header"
        self._findings.add(header_damage(self._file, self._name, reason), done)

    def _contradiction(self, view: memoryview, limit: int, words: list[int], position: int) -> str | None:
        """Return in what a header contradicts the frames; that of the last segment may be behind them."""
        if self._following is not None and words[COMMITTED] != limit:
            return f"expected {limit} committed bytes, got {words[COMMITTED]}"
        if self._following is not None and words[END] != position:
            return f"expected the end at position {position}, got {words[END]}"
        if self._following is not None and not words[SEALED]:
            return "expected a sealed segment, because another follows"
        snapshot = intact_header(view, HEADER_BYTES, limit)
        if snapshot is not None and words[ARRIVAL] != snapshot.arrival:
            return f"expected the arrival time {snapshot.arrival}, got {words[ARRIVAL]}"
        return None

    def _save(self, view: memoryview, found: DamagedBytes) -> Path:
        """Save damaged bytes beside the segment."""
        saved = self._file.with_suffix(f".{found.offset}.damaged")
        with saved.open("wb") as stream:
            stream.write(view[found.offset : found.stop])
            stream.flush()
            os.fsync(stream.fileno())
        return saved

    def _write(self, offset: int, data: bytes) -> None:
        with self._file.open("r+b") as stream:
            stream.seek(offset)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
