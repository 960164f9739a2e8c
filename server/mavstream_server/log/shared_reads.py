"""Sharing: cursors of one log that stand at the same place take the same rows, and read them once.

Queries on one stream mostly keep in step: the first of them pays for taking and gathering the rows, the
others find the portion. One that stands elsewhere reads for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mavstream_server.log.read_batch import ReadBatch

if TYPE_CHECKING:
    from mavstream_server.log.cursor import Cursor, CursorState

_KEPT = 2  # queries on a stream fall into few groups, and each portion holds memory


class _Taken(NamedTuple):
    portion: ReadBatch
    behind: CursorState


class SharedReads:
    """The portions of one log that were taken last, by where a cursor stood and where the log ended."""

    def __init__(self) -> None:
        self._taken: dict[object, _Taken] = {}
        self.found = 0
        """How often a portion did not have to be taken again."""

    def take(self, cursor: Cursor, rows: int) -> ReadBatch:
        """Take up to so many rows; the cursor stands behind them. Raises GapError as `Cursor.take` does."""
        key = cursor.standing(rows)
        known = None if key is None else self._taken.get(key)
        if known is not None:
            self.found += 1
            cursor.stand(known.behind)
            return known.portion
        portion = ReadBatch(cursor.take(rows))
        if key is not None and portion.rows:
            if len(self._taken) >= _KEPT:
                del self._taken[next(iter(self._taken))]
            self._taken[key] = _Taken(portion, cursor.place)
        return portion

    def clear(self) -> None:
        """Let go of what is kept."""
        self._taken.clear()
