"""The memory map of a segment file, which may still be written."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mavstream_server.log.errors import LogCorruptError
from mavstream_server.log.format.layout import ITEMS
from mavstream_server.log.format.segment import COMMITTED, END, HEADER_BYTES, SEALED, parse_info


class SegmentMap:
    """The committed bytes of a segment file; the file is mapped again when they have outgrown the map."""

    __slots__ = ("arrays", "file", "info", "limit", "status", "view", "words")

    def __init__(self, file: Path) -> None:
        self.file = file
        self.status = self._map()
        """The status (`fstat`) of the file when it was first mapped."""
        self.info = parse_info(file, self.words)
        self.limit = self.words[COMMITTED]
        """The committed length of the segment, in bytes, as of the last `refresh`."""
        self._check_limit()

    def _map(self) -> os.stat_result:
        with self.file.open("rb", buffering=0) as stream:
            found = os.fstat(stream.fileno())
            try:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise LogCorruptError(
                    self.file, "the segment is empty; open the log with its writer to repair it"
                ) from None
        self.view = memoryview(mapped)
        whole = len(mapped) & ~7
        self.words = self.view[: min(whole, HEADER_BYTES)].cast("q")
        # Columns are slices of these arrays: a quarter of the cost of a frombuffer for each column.
        bytes_: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8, whole)
        self.arrays: tuple[npt.NDArray[Any], ...] = tuple(bytes_.view(dtype) for dtype in ITEMS)
        return found

    def _check_limit(self) -> None:
        if self.limit > len(self.view):
            # The writer may have extended the segment since it was mapped.
            self._map()
            if self.limit > len(self.view) and self.sealed:
                self.limit = len(self.view) & ~7  # the rest of the file was lost
            elif self.limit > len(self.view):
                raise LogCorruptError(
                    self.file,
                    f"expected {self.limit} committed bytes, got a file of {len(self.view)}; "
                    "open the log with its writer, which truncates it after the last complete frame",
                )

    @property
    def sealed(self) -> bool:
        """Whether the segment is finished; call `refresh` once more after it has become true."""
        return bool(self.words[SEALED])

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.words[END]

    def refresh(self) -> int:
        """Update `limit` to the committed length of the segment, in bytes, and return it.

        If the segment outgrew its map and its file was removed meanwhile, the limit stays as it is: cursors
        continue with the next segment and detect the gap.
        """
        committed, known = self.words[COMMITTED], self.limit
        if committed != known:
            self.limit = committed
            try:
                self._check_limit()
            except FileNotFoundError:
                self.limit = known
        return self.limit

    def close(self) -> None:
        """Release the map, which is closed with the last column that refers to it."""
        self.view = memoryview(b"")
        self.words = self.view.cast("q")
        self.arrays = ()
