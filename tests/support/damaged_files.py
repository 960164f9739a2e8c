"""Damage to files, and what is left of a log behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mavstream_server.log import GapError, LogReader


def flip(file: Path, *offsets: int) -> None:
    """Flip bits of single bytes."""
    with file.open("r+b") as stream:
        for offset in offsets:
            stream.seek(offset)
            (byte,) = stream.read(1)
            stream.seek(offset)
            stream.write(bytes([byte ^ 0x41]))


def segments(log: Path) -> list[Path]:
    """Return the segment files of a log, oldest first."""
    return sorted(log.glob("*.segment"), key=lambda file: file.name.split("-")[1])


def frame_offsets(log: Path) -> dict[int, tuple[Path, int, int]]:
    """Return file, byte offset and length of the frame with each row, for frames of one row."""
    found: dict[int, tuple[Path, int, int]] = {}
    cursor = LogReader(log).cursor(0)
    while (step := cursor.next()) is not None:
        frame = step[0]
        if frame.rows:
            found[frame.first_position] = (frame.segment.file, frame.byte_offset, frame.nbytes)
    return found


def read_all(reader: LogReader, *names: str, most: int = 7) -> tuple[dict[int, Any], list[GapError]]:
    """Return the rows by position, as tuples of the named columns, and the gaps."""
    fields = {field.name: field.type for field in reader.description.schema}
    rows: dict[int, Any] = {}
    gaps: list[GapError] = []
    cursor = reader.cursor(reader.begin)
    while True:
        try:
            spans = cursor.take(most)
        except GapError as gap:
            gaps.append(gap)
            continue
        if not spans:
            return rows, gaps
        for frame, start, stop in spans:
            if stop > start:
                lists = [frame.column(name).to_list(fields[name])[start:stop] for name in names]
                rows |= dict(enumerate(zip(*lists, strict=True), frame.first_position + start))
