"""Group commit of results: with delivery `sync`, readers get a result when the disk has it.

The engine does not wait for the disk. The server syncs the result logs that are read, each at most once at a
time: what was appended while the disk was busy is synced together next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mavstream_server.core.event_loop.background import Background
from mavstream_server.log.syncing import sync_log

_log = logging.getLogger(__name__)


class SyncedEnd:
    """The offset up to which the disk has the results of one query."""

    def __init__(self, path: Path, background: Background) -> None:
        """`path` is the directory of the result log."""
        self._path = path
        self._background = background
        self._serial = 0
        self._busy = False
        self._failed = False
        self.offset = 0
        """All results before this offset are on disk."""

    def request(self, end: Callable[[], int], done: Callable[[], object]) -> None:
        """Sync the log up to its end, and call `done` whenever more of it is on disk."""
        target = end()
        if self._busy or self._failed or target <= self.offset:
            return
        self._busy = True

        def work() -> None:
            self._serial = sync_log(self._path, self._serial)

        def finished(error: BaseException | None) -> None:
            self._busy = False
            if error is not None:
                # What the disk has is unknown after a failed sync, and a second one may wrongly succeed.
                self._failed = True
                fields = {"query": self._path.name, "reason": str(error)}
                _log.error("results could not be synced: no more are delivered until a restart", extra=fields)
                return
            self.offset = max(self.offset, target)
            done()
            self.request(end, done)

        self._background.run(work, finished)
