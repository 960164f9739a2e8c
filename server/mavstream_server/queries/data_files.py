"""Watches the data directory: directories that belong to nothing, and files that were deleted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.tables.store import TableStore

_LOG = logging.getLogger("mavstream.files")

PERIOD = 10_000_000_000
"""Interval of checks, in nanoseconds."""


class DataFiles:
    """Finds orphan directories and deleted files; each is logged when it is first seen, none is changed."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        streams: StreamStore,
        tables: TableStore,
        queries: QueryRegistry,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._streams = streams
        self._tables = tables
        self._queries = queries
        self._checked: int | None = None
        self._catalog_deleted = False
        self.orphans: tuple[str, ...] = ()
        """Directories that belong to no stream, table or query, relative to the data directory."""

    @property
    def failures(self) -> dict[str, str]:
        """Streams that accept nothing because of their files, and a deleted catalog, with the reasons."""
        failures = dict(self._streams.failures)
        if self._catalog_deleted:
            failures["catalog"] = (
                f"'{self._settings.catalog_file}' was deleted while the server uses it: changes are lost "
                "with the next restart; restore it from a backup while the server is stopped"
            )
        return failures

    def check(self, monotonic: int) -> None:
        """Look at the directories, if it is time to; `monotonic` is in ns."""
        if self._checked is not None and monotonic - self._checked < PERIOD:
            return
        self._checked = monotonic
        if self._catalog.deleted and not self._catalog_deleted:
            self._catalog_deleted = True
            _LOG.error("catalog deleted", extra={"file": str(self._settings.catalog_file)})
        known = (
            (self._settings.streams_directory, self._streams),
            (self._settings.tables_directory, self._tables.names),
            (self._settings.results_directory, self._queries),
            (self._settings.checkpoints_directory, self._queries),
        )
        orphans = tuple(
            f"{directory.name}/{name}"
            for directory, names in known
            for name in _directories(directory)
            if name not in names
        )
        for orphan in orphans:
            if orphan not in self.orphans:
                _LOG.warning("directory belongs to nothing", extra={"directory": orphan})
        self.orphans = orphans


def _directories(path: Path) -> list[str]:
    """Return the directories in a directory; those whose names begin with a dot are being changed."""
    try:
        with os.scandir(path) as entries:
            return sorted(each.name for each in entries if each.is_dir() and not each.name.startswith("."))
    except FileNotFoundError:
        return []
