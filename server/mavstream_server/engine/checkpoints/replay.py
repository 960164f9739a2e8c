"""Replay: strikes off the results that are already in the result log as they are computed again.

A query that continues from a checkpoint emits the results since that checkpoint again, perhaps in another
order. Answers are multisets, so each one that equals a stored row stands for it and is dropped. Rows of
different times are different, and so are late rows with other watermarks: queries that read the results
depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.row_hash import RowHashes, Words, row_hashes


class Replay:
    """The stored results that have not been computed again yet, by hash and count."""

    def __init__(self, names: Sequence[str], stored: Iterable[tuple[Sequence[Column], int]]) -> None:
        """`stored` are the result rows since the checkpoint, as columns in the order of `names`.

        Behind these are the `time_columns`.
        """
        self._names = tuple(names)
        hashes = [row_hashes(columns, size) for columns, size in stored]
        high = np.concatenate([part.high for part in hashes]) if hashes else _NO_WORDS
        low = np.concatenate([part.low for part in hashes]) if hashes else _NO_WORDS
        order = np.lexsort((low, high))
        high, low = high[order], low[order]
        first = np.ones(len(high), dtype=bool)
        first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        starts = np.flatnonzero(first)
        self._high, self._low = high[starts], low[starts]
        self._counts = np.diff(starts, append=len(high))
        self.remaining = len(high)
        """Stored rows that have not been computed again."""
        self.rows = 0
        """Rows that were struck off."""

    def unrepeated(self, batch: Batch) -> Batch:
        """Return the rows of a batch that are not stored, and strike off the others."""
        columns = [batch.columns[name] for name in self._names]
        columns += time_columns(batch.time, batch.row_watermark, batch.size)
        found = self._find(row_hashes(columns, batch.size))
        known = np.flatnonzero(found >= 0)
        if not len(known):
            return batch
        # Of several equal rows as many are struck off as are stored.
        order = known[np.argsort(found[known], kind="stable")]
        entries = found[order]
        first = np.ones(len(entries), dtype=bool)
        first[1:] = entries[1:] != entries[:-1]
        starts = np.flatnonzero(first)
        rank = np.arange(len(entries)) - np.repeat(starts, np.diff(starts, append=len(entries)))
        struck = order[rank < self._counts[entries]]
        self._counts -= np.bincount(found[struck], minlength=len(self._counts))
        self.remaining -= len(struck)
        self.rows += len(struck)
        kept = np.ones(batch.size, dtype=bool)
        kept[struck] = False
        return batch.take(np.flatnonzero(kept))

    def _find(self, hashes: RowHashes) -> Ints:
        """Return the entry of each hash, -1 for those that are not stored."""
        entries = np.searchsorted(self._high, hashes.high)
        found = np.full(len(entries), -1, dtype=np.int64)
        open_ = np.arange(len(entries))
        while len(open_):  # more than once only where first halves collide
            at = entries[open_]
            open_ = open_[at < len(self._high)]
            at = entries[open_]
            open_ = open_[self._high[at] == hashes.high[open_]]
            at = entries[open_]
            equal = self._low[at] == hashes.low[open_]
            found[open_[equal]] = at[equal]
            open_ = open_[~equal]
            entries[open_] += 1
        return found


def time_columns(time: Ints | None, row_watermark: Ints | None, size: int) -> list[Column]:
    """Return the time of results, and the watermark ahead of those that are late, as columns."""
    if time is None:
        return []
    if row_watermark is None or row_watermark is time:
        return [Column(time), Column(np.full(size, BEGIN_OF_TIME))]
    return [Column(time), Column(np.where(time < row_watermark, row_watermark, BEGIN_OF_TIME))]


_NO_WORDS: Words = np.empty(0, dtype=np.uint64)
