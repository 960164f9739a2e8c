"""Check and repair of a log: verifies every frame of every segment.

A repair saves damaged frames beside the segment and overwrites them with a record of the lost rows, so that
all other rows keep their positions and readers get a gap for the lost ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mavstream_server.checking.findings import Findings
from mavstream_server.core.damage import Damage
from mavstream_server.log import LogError, load_description
from mavstream_server.log.checked_files import CHECKSUM
from mavstream_server.log.format.checks import DamagedBytes, IntactFrame, intact_header, lost_frame, walk
from mavstream_server.log.format.layout import FRAME_BYTES, FrameKind
from mavstream_server.log.format.segment import (
    ARRIVAL,
    COMMITTED,
    END,
    HEADER_BYTES,
    HEADER_WORDS,
    MAGIC,
    OFFSET,
    POSITION,
    SEALED,
    SEGMENT_MAGIC,
    SEGMENT_VERSION,
    SERIAL,
    VERSION,
    SegmentName,
    list_segments,
    parse_info,
    read_words,
)
from mavstream_server.log.recovery import is_torn, missing_segments


def check_log(path: Path, findings: Findings, *, repair: bool) -> None:
    """Check the log in a directory; no process may write it meanwhile."""
    try:
        load_description(path)
    except LogError as error:
        findings.broken(path, error.detail)
        return
    names = list_segments(path)
    for damage in missing_segments(path):
        findings.add(damage)
    for index in range(len(names)):
        _Segment(path, names, index, findings, repair).check()


class _Segment:
    """The check of one of a log's segments."""

    def __init__(
        self, path: Path, names: Sequence[SegmentName], index: int, findings: Findings, repair: bool
    ) -> None:
        self._path = path
        self._names = names
        self._index = index
        self._name = names[index]
        self._file = self._name.within(path)
        self._following = names[index + 1] if index + 1 < len(names) else None
        self._findings = findings
        self._repair = repair

    def check(self) -> None:
        """Check the header and all frames."""
        self._findings.files += 1
        data = self._file.read_bytes()
        if self._following is None and not any(data[:HEADER_BYTES]):
            return  # never had a row; the next start removes it
        view = memoryview(data)[: len(data) & ~7]
        words = list(read_words(self._file))
        limit = self._limit(view, words)
        position = self._frames(view, limit, words)
        self._header(view, limit, words, position)

    def _limit(self, view: memoryview, words: list[int]) -> int:
        """Return the byte offset at which the frames end."""
        if len(words) == HEADER_WORDS and HEADER_BYTES <= words[COMMITTED] <= len(view):
            behind = bytes(view[words[COMMITTED] :])
            if self._following is None or not any(behind):
                return words[COMMITTED]
        return -(-len(bytes(view).rstrip(b"\0")) // 8) * 8

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
        if stop is None:
            end = words[END] if len(words) == HEADER_WORDS else start
            last = end if start <= end <= start + nbytes else start
            stop = last if self._following is None else self._following.position
        done = None
        if self._repair and nbytes >= FRAME_BYTES:
            saved = self._save(view, found)
            self._write(found.offset, lost_frame(view, found, stop))
            done = f"recorded the loss, the bytes are in {saved.name}"
        self._findings.add(Damage(self._file, found.offset, nbytes, start, stop, CHECKSUM), done)
        return stop

    def _header(self, view: memoryview, limit: int, words: list[int], position: int) -> None:
        """Check the header against the name and the frames."""
        reason = self._header_error(view, words, limit, position)
        if reason is None:
            return
        done = None
        if self._repair:
            self._write(0, self._new_header(view, limit, words, position))
            done = "rewrote the header"
        damage = Damage(self._file, 0, HEADER_BYTES, self._name.position, self._name.position, reason)
        self._findings.add(damage, done)

    def _header_error(self, view: memoryview, words: list[int], limit: int, position: int) -> str | None:
        try:
            info = parse_info(self._file, words)
        except LogError as error:
            return error.detail
        if info.name != self._name:
            return (
                f"expected the header of {self._file.name}, got that of {info.name.within(self._path).name}"
            )
        if self._following is not None and words[COMMITTED] != limit:
            return f"expected {limit} committed bytes, got {words[COMMITTED]}"
        if self._following is not None and words[END] != position:
            return f"expected the end at position {position}, got {words[END]}"
        if self._following is not None and not words[SEALED]:
            return "expected a sealed segment, because another follows"
        snapshot = intact_header(view, HEADER_BYTES, limit)
        if snapshot is not None and words[ARRIVAL] != snapshot.arrival:
            return f"expected the arrival time {snapshot.arrival}, got {words[ARRIVAL]}"
        offset = self._expected_offset(limit)
        if offset is not None and words[OFFSET] != offset:
            return f"expected {offset} bytes of the log before it, got {words[OFFSET]}"
        return None

    def _expected_offset(self, limit: int) -> int | None:
        """Return the bytes of the log before the segment, from a neighbour that is consistent with its own.

        None if there is no such neighbour, or if this segment is consistent with one of its neighbours.
        """
        names, index = self._names, self._index
        if self._agree(index - 1) or self._agree(index):
            return None
        if self._agree(index + 1) and names[index + 1].serial == self._name.serial + 1:
            return self._words(index + 1)[OFFSET] - limit
        if self._agree(index - 2) and names[index - 1].serial == self._name.serial - 1:
            words = self._words(index - 1)
            return words[OFFSET] + words[COMMITTED]
        return None

    def _agree(self, index: int) -> bool:
        """Return whether a segment ends, in bytes of the log, where the next one begins."""
        if not 0 <= index < len(self._names) - 1:
            return False
        words, following = self._words(index), self._words(index + 1)
        return words[OFFSET] + words[COMMITTED] == following[OFFSET]

    def _words(self, index: int) -> list[int]:
        words = list(read_words(self._names[index].within(self._path)))
        return words if len(words) == HEADER_WORDS else [-1] * HEADER_WORDS

    def _new_header(self, view: memoryview, limit: int, words: list[int], position: int) -> bytes:
        snapshot = intact_header(view, HEADER_BYTES, limit)
        words = words if len(words) == HEADER_WORDS else [0] * HEADER_WORDS
        words[MAGIC], words[VERSION] = SEGMENT_MAGIC, SEGMENT_VERSION
        words[SERIAL], words[POSITION] = self._name
        words[COMMITTED], words[END] = limit, position
        words[SEALED] = int(self._following is not None)
        if snapshot is not None:
            words[ARRIVAL] = snapshot.arrival
        offset = self._expected_offset(limit)
        if offset is not None:
            words[OFFSET] = offset
        return b"".join(word.to_bytes(8, "little", signed=True) for word in words)

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
