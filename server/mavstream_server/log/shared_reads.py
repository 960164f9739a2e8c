"""Shared reads: cursors at the same position of a log read the same rows only once.

Queries on one stream mostly read in step: the first one reads and gathers the rows, the others reuse its
read batch. A cursor at another position reads on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mavstream_server.log.read_batch import ReadBatch

if TYPE_CHECKING:
    from mavstream_server.log.cursor import Cursor, CursorState

_CACHED = 2  # queries on a stream form few groups, and each read batch holds memory


class _SharedRead(NamedTuple):
    batch: ReadBatch
    after: CursorState


class SharedReads:
    """The latest read batches of one log, by the state of the cursor and the end of the log."""

    def __init__(self) -> None:
        self._latest: dict[object, _SharedRead] = {}
        self.found = 0
        """How often a read batch was reused."""

    def take(self, cursor: Cursor, rows: int) -> ReadBatch:
        """Read at most `rows` rows and move the cursor behind them; raise GapError as `Cursor.take` does."""
        key = cursor.read_key(rows)
        known = None if key is None else self._latest.get(key)
        if known is not None:
            self.found += 1
            cursor.restore(known.after)
            return known.batch
        batch = ReadBatch(cursor.take(rows))
        if key is not None and batch.rows:
            if len(self._latest) >= _CACHED:
                del self._latest[next(iter(self._latest))]
            self._latest[key] = _SharedRead(batch, cursor.state)
        return batch

    def clear(self) -> None:
        """Release all read batches."""
        self._latest.clear()
