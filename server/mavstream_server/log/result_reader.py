"""Reading a result log in the engine that writes it, for queries that read the results of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mavstream_server.columns.batch import BEGIN_OF_TIME, Mark
from mavstream_server.core.storage.damage import DamageListener, log_damage
from mavstream_server.log.reader import LogReader

_NOTHING = Mark()


def _no_mark() -> Mark:
    return _NOTHING


def _ignore() -> None:
    """Do nothing: the default callback."""


class ResultReader(LogReader):
    """The reader of a result log, with what its query has not written: marks without rows, and its end.

    Time passes for a query's readers without results, too. Such marks are frequent and of no use to
    subscribers, so they are handed over in memory, behind all rows that were appended before.
    """

    def __init__(
        self, path: Path, cache_bytes: int = 32 << 20, on_damage: DamageListener = log_damage
    ) -> None:
        super().__init__(path, cache_bytes, on_damage)
        self.reached: Callable[[], Mark] = _no_mark
        """Returns the last mark that the query has emitted; nothing of it precedes rows in the log."""
        self.over = False
        """Whether the query has ended, so that nothing follows the log's last row."""
        self.read: Callable[[], None] = _ignore
        """Called whenever a query has read results."""
        self._known = BEGIN_OF_TIME, False

    @property
    def begin_of_columns(self) -> int:
        """The position of the first retained row that has the present columns."""
        earlier = self.description.earlier
        since = earlier[-1].before if earlier else 0
        return next(name.position for name in self._names() if name.serial >= since)

    @property
    def watermark(self) -> int:
        """The watermark (us) that the query has reached."""
        return self.reached().watermark

    def grown(self) -> bool:
        """Return whether there is a row or a mark, or the end, that was not there at the last call."""
        known, self._known = self._known, (self.reached().watermark, self.over)
        return super().grown() or known != self._known
