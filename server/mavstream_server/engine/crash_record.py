"""The crash record: shared memory in which an engine notes what it runs, readable after its process died."""

from __future__ import annotations

import mmap
import os
import tempfile
from array import array
from collections.abc import Iterable
from typing import NamedTuple, Self

SIZE = 1 << 20
"""Bytes of a record: enough for the ids of thousands of queries that share a pipeline."""

# The layout: words of 8 bytes (when the work began, the length of the note, the number of positions, the
# positions), then the note.
_BEGAN, _LENGTH, _COUNT, _POSITIONS = range(4)
_WORDS = 128
_HEADER = 8 * _WORDS


class Reading(NamedTuple):
    """The rows of a stream that a query has read last, or was reading."""

    stream: str
    start: int
    """The position of the first row."""
    stop: int
    """The position behind the last row."""


class Noted(NamedTuple):
    """What an engine was running."""

    queries: tuple[str, ...]
    """The ids of the queries that it worked for: several if they share a pipeline."""
    readings: tuple[Reading, ...]
    """The rows that they were at, by stream."""


class CrashRecord:
    """What an engine runs at present, in memory that outlives its process.

    Writing takes some 0.3 us, and is done once for each operator that runs.
    """

    def __init__(self, memory: mmap.mmap | bytearray | None = None) -> None:
        """`memory` is of `SIZE` bytes, zero at first; None for memory of this process."""
        self._memory = bytearray(SIZE) if memory is None else memory
        self._words = memoryview(self._memory)[:_HEADER].cast("q")
        self._note = b""

    @classmethod
    def on(cls, fd: int) -> Self:
        """Return the record in the file of a descriptor, which may be closed afterwards."""
        return cls(mmap.mmap(fd, SIZE))

    def begin(self, note: bytes, positions: array[int], now: int) -> None:
        """Note that work for a query begins.

        `note` is that of `note_of`, the positions are pairs in the order of its streams: of the first row
        that is read, and behind the last.
        """
        words = self._words
        if note is not self._note:
            self._note = note
            part = note[: SIZE - _HEADER]
            self._memory[_HEADER : _HEADER + len(part)] = part
            words[_LENGTH] = len(part)
        count = len(positions)
        if count > _WORDS - _POSITIONS:
            positions, count = _NO_POSITIONS, 0
        words[_COUNT] = count
        words[_POSITIONS : _POSITIONS + count] = positions
        words[_BEGAN] = now

    def end(self) -> None:
        """Note that the work has ended."""
        self._words[_BEGAN] = 0

    def read(self) -> Noted | None:
        """Return what was running when the record was last written; None if nothing was."""
        began, length, count = self._words[:_POSITIONS].tolist()
        if not began or not 0 < length <= SIZE - _HEADER:
            return None
        text = self._memory[_HEADER : _HEADER + length].decode(errors="replace")
        queries, _, streams = text.partition("\n")
        positions = self._words[_POSITIONS : _POSITIONS + count].tolist()
        pairs = zip(streams.split(), positions[::2], positions[1::2], strict=False)
        return Noted(tuple(queries.split()), tuple(Reading(*pair) for pair in pairs))


def record_file() -> int:
    """Create a file for a record that no path leads to; returns a descriptor that can be passed on."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mavstream-crash-record")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, SIZE)
    return fd


def note_of(queries: Iterable[str], streams: Iterable[str] = ()) -> bytes:
    """Return a note for a record: the ids of queries, and the streams that they read."""
    return f"{' '.join(queries)}\n{' '.join(streams)}".encode()


_NO_POSITIONS = array("q")
