"""Errors of the files of a table."""

from __future__ import annotations

from pathlib import Path

from mavstream_protocol.errors import MavstreamError


class TableFilesError(MavstreamError):
    """A file of a table is missing or cannot be read."""

    code = "table_files"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"table files at '{path}': {reason}")
        self.path = path
