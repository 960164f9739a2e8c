"""The checkpoints of all queries on disk: a folder per query, of which the last two checkpoints are kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mavstream_server.engine.checkpoints import file
from mavstream_server.engine.checkpoints.file import CheckpointHeader, CheckpointUnusable
from mavstream_server.log.format.segment import sync_directory
from mavstream_server.log.syncing import sync_log

_log = logging.getLogger(__name__)

KEPT = 2
"""Checkpoints of a query that are kept: if the last one is damaged, the one before it is used."""
_SUFFIX = ".checkpoint"


class StoredCheckpoint(NamedTuple):
    """A checkpoint on disk."""

    number: int
    """Counts the checkpoints of a query."""
    header: CheckpointHeader


class CheckpointStore:
    """The checkpoint files below a folder."""

    def __init__(self, folder: Path, *, synced_with: Path | None = None) -> None:
        """With `synced_with`, the folder of result logs, checkpoints survive power loss.

        Before a checkpoint is written, the disk gets the results that it refers to.
        """
        self._folder = folder
        self._results = synced_with

    @property
    def synced(self) -> bool:
        """Whether writing a checkpoint waits for the disk."""
        return self._results is not None

    def path(self, id_: str, number: int) -> Path:
        """Return the file of a checkpoint."""
        return self._folder / id_ / f"{number:012d}{_SUFFIX}"

    def write(
        self,
        number: int,
        header: CheckpointHeader,
        snapshot: bytes,
        *,
        keep: int = KEPT,
        reads: Iterable[str] = (),
    ) -> int:
        """Write a checkpoint, keep the last `keep` up to it, return its bytes; raises OSError.

        `reads` are the ids of the queries whose results the query reads.
        """
        path = self.path(header.query, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._results is not None:
            for id_ in (header.query, *reads):
                sync_log(self._results / id_)
        size = file.write(path, header, snapshot, sync=self.synced)
        if self.synced:
            sync_directory(path.parent)
        numbers = sorted(self._numbers(header.query))
        if numbers[-1] > number:
            # Another process has written a newer one meanwhile, with a command that this one does not know.
            self.discard(header.query, number)
            return size
        for older in numbers[:-keep]:
            self.discard(header.query, older)
        return size

    def discard(self, id_: str, number: int) -> None:
        """Remove one checkpoint, and the folder with the last one, if they can be removed."""
        with suppress(OSError):
            self.path(id_, number).unlink(missing_ok=True)
            (self._folder / id_).rmdir()

    def read(self, id_: str, number: int) -> tuple[CheckpointHeader, memoryview]:
        """Read a checkpoint; raises CheckpointUnusable."""
        return file.read(self.path(id_, number))

    def nbytes(self, id_: str, number: int) -> int:
        """Return the size of a checkpoint's file; raises OSError."""
        return self.path(id_, number).stat().st_size

    def stored(self, id_: str) -> list[StoredCheckpoint]:
        """Return the checkpoints of a query, newest first; those with a damaged header are left out."""
        found = []
        for number in sorted(self._numbers(id_), reverse=True):
            try:
                found.append(StoredCheckpoint(number, file.read_header(self.path(id_, number))))
            except CheckpointUnusable as error:
                _log.error("checkpoint is left out", extra={"fields": {"query": id_, "reason": str(error)}})
        return found

    def remove(self, id_: str) -> None:
        """Remove all checkpoints of a query; does nothing if it has none."""
        shutil.rmtree(self._folder / id_, ignore_errors=True)

    def _numbers(self, id_: str) -> list[int]:
        try:
            names = [path.name for path in (self._folder / id_).iterdir()]
        except OSError:
            return []
        return [int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]
