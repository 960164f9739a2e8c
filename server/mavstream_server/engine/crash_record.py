"""The crash record: shared memory in which an engine notes what it runs, readable after its process died."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import NamedTuple, Self

SIZE = 1 << 20
"""Bytes of a record: enough for the ids of thousands of queries that share a pipeline."""

_HEADER = 16  # bytes: when the work began, and the length of the note


class Reading(NamedTuple):
    """The rows of a stream that a query has read last, or was reading."""

    stream: str
    start: int
    """The position of the first row."""
    stop: int
    """The position behind the last row."""


class Noted(NamedTuple):
    """What an engine was running."""

    since: int
    """When it began (monotonic, ns)."""
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

    @classmethod
    def on(cls, fd: int) -> Self:
        """Return the record in the file of a descriptor, which may be closed afterwards."""
        return cls(mmap.mmap(fd, SIZE))

    def begin(self, note: bytes, now: int) -> None:
        """Note that work for a query begins, described by `note_of`."""
        note = note[: SIZE - _HEADER]
        self._memory[_HEADER : _HEADER + len(note)] = note
        self._words[1] = len(note)
        self._words[0] = now

    def end(self) -> None:
        """Note that the work has ended."""
        self._words[0] = 0

    def read(self) -> Noted | None:
        """Return what was running when the record was last written; None if nothing was."""
        since, length = self._words
        if not since or not 0 < length <= SIZE - _HEADER:
            return None
        first, *rest = self._memory[_HEADER : _HEADER + length].decode(errors="replace").split("\n")
        lines = [line.split() for line in rest]
        readings = [Reading(line[0], int(line[1]), int(line[2])) for line in lines if len(line) == 3]
        return Noted(since, tuple(first.split()), tuple(readings))


def record_file() -> int:
    """Create a file for a record that no path leads to; returns a descriptor that can be passed on."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mavstream-crash-record")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, SIZE)
    return fd


def note_of(queries: str, readings: list[Reading]) -> bytes:
    """Return a note for a record: ids of queries, separated by spaces, and the rows that they are at."""
    lines = [f"{stream} {start} {stop}" for stream, start, stop in readings]
    return "\n".join([queries, *lines]).encode()
