"""The memory map of a segment file, which may still be written."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mavstream_server.log.errors import LogCorruptError
from mavstream_server.log.format.layout import FRAME_BYTES, ITEMS
from mavstream_server.log.format.segment import (
    COMMITTED,
    END,
    HEADER_BYTES,
    SEALED,
    SegmentName,
    header_error,
    info_of,
    position_behind,
)
from mavstream_server.log.headers import rebuild_header


class SegmentMap:
    """The committed bytes of a segment file; the file is mapped again when they have outgrown the map.

    If the header is damaged, a rebuilt one is used until the writer has restored it.
    """

    __slots__ = (
        "_mapped_words",
        "arrays",
        "file",
        "header_error",
        "info",
        "limit",
        "name",
        "status",
        "view",
        "words",
    )

    def __init__(self, path: Path, name: SegmentName) -> None:
        self.name = name
        self.file = name.within(path)
        self.status = self._map()
        """The status (`fstat`) of the file when it was first mapped."""
        self.words: Sequence[int] = self._mapped_words
        self.header_error = self._find_error()
        """What is wrong with the header in the file; None if it is intact."""
        if self.header_error is not None:
            if not bytes(self.view).rstrip(b"\0") and position_behind(path, name.serial) is None:
                raise LogCorruptError(
                    self.file, "the segment is empty; open the log with its writer to repair it"
                )
            self.words = rebuild_header(path, name, self.view)
        self.info = info_of(self.words)
        self.limit = HEADER_BYTES
        """The committed length of the segment, in bytes, as of the last `refresh`."""
        self.refresh()

    def _map(self) -> os.stat_result:
        with self.file.open("rb", buffering=0) as stream:
            found = os.fstat(stream.fileno())
            mapped: mmap.mmap | bytes = b""
            if found.st_size:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self.view = memoryview(mapped)
        whole = len(mapped) & ~7
        self._mapped_words = self.view[: min(whole, HEADER_BYTES)].cast("q")
        # Columns are slices of these arrays: a quarter of the cost of a frombuffer for each column.
        bytes_: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8, whole)
        self.arrays: tuple[npt.NDArray[Any], ...] = tuple(bytes_.view(dtype) for dtype in ITEMS)
        return found

    def _find_error(self) -> str | None:
        # Looked at twice, because the writer may have been about to change it.
        for _ in range(2):
            error = header_error(self.name, self._mapped_words.tolist(), len(self.view))
            if error is None:
                break
        return error

    @property
    def sealed(self) -> bool:
        """Whether the segment is finished; call `refresh` once more after it has become true."""
        return self.words[SEALED] == 1

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.words[END]

    def refresh(self) -> int:
        """Update `limit` to the committed length of the segment, in bytes, and return it.

        If the segment outgrew its map and its file was removed meanwhile, the limit stays as it is: cursors
        continue with the next segment and detect the gap.
        """
        if self.header_error is not None and self._find_error() is None:
            self.header_error, self.words = None, self._mapped_words
        committed = self.words[COMMITTED]
        if committed != self.limit:
            self._extend(committed)
        return self.limit

    def _extend(self, committed: int) -> None:
        """Extend the limit to a committed length, unless that cannot be one: then the header is damaged."""
        if committed > len(self.view):
            # The writer may have extended the segment since it was mapped.
            try:
                self._map()
            except FileNotFoundError:
                return
            if self.header_error is None:
                self.words = self._mapped_words
            if self.sealed:
                committed = min(committed, len(self.view) & ~7)  # the rest of the file may be lost
        known = self.limit
        if not known < committed <= len(self.view) or committed % 8:
            return
        # Where nothing was written there are zeros.
        if known == HEADER_BYTES or self.sealed or any(self.view[known : known + FRAME_BYTES]):
            self.limit = committed

    def close(self) -> None:
        """Release the map, which is closed with the last column that refers to it."""
        self.view = memoryview(b"")
        self.words = self._mapped_words = self.view.cast("q")
        self.arrays = ()
