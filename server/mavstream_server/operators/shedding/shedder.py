"""Load shedding: decides which rows of a stream a query drops.

Positions are divided into blocks of 4,096. Of each block at most the current share is shed, whatever values
the rows have. Which rows are shed depends on their positions, and on their utility where the query defines
one, but neither on the scheduling policy nor on how rows are divided into batches. Without a utility, two
queries that shed the same share of a stream drop the same rows, and a larger share drops those of a smaller
share, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from mavstream_protocol.expressions.typed import Expression
from mavstream_server.columns.column import Ints
from mavstream_server.log.read_batch import ReadBatch
from mavstream_server.operators.shedding.intervals import SheddingIntervals
from mavstream_server.operators.shedding.utility import LeastUtility

BLOCK = 4096
"""The number of positions in a block, the unit within which the share is enforced."""
WEIGHT = "#weight"
"""The hidden column with the number of rows that a remaining row represents; no field can have this name."""

_NONE: Ints = np.empty(0, dtype=np.int64)
_Words: TypeAlias = npt.NDArray[np.uint64]

# The finalizer of SplitMix64: every bit of a position affects half of the bits of the result.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Shedder:
    """Decides which rows of one stream a query sheds; none until a share is set."""

    __slots__ = ("_known", "_least", "_salt", "_utility", "quota", "record", "share")

    def __init__(self, stream: str, utility: Expression | None = None) -> None:
        """Create a shedder with share 0.

        `utility` is a number or a condition over the stream's fields: rows of least utility are shed first.
        """
        # A salt per stream makes streams shed at different positions, so that their sampling errors are
        # independent and the variances of scaled sums add up.
        self._salt = np.uint64(crc32(stream.encode()))
        self._utility = None if utility is None else LeastUtility(utility, BLOCK)
        self.record = SheddingIntervals(stream)
        self._known, self._least = (-1, -1), np.uint64(0)
        self.share = 0.0
        self.quota = 0
        """The most rows of a block that are shed; 0 for none."""

    def set(self, share: float) -> None:
        """Shed a share of the rows from here on: from 0, for none, to 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"the share of rows to shed must be from 0 to 1, got {share}")
        if share == self.share:
            return
        self.share, self.quota = share, int(share * BLOCK)
        self.record.begin(share)

    def rank_by(self, utility: Expression | None) -> None:
        """Shed rows of least utility first from here on; None sheds rows at random."""
        self._utility = None if utility is None else LeastUtility(utility, BLOCK)

    @property
    def weight(self) -> float:
        """How many rows of the stream each remaining row represents, if rows are shed at random."""
        return BLOCK / (BLOCK - self.quota) if self.quota < BLOCK else 1.0

    def kept(self, read_batch: ReadBatch) -> Ints:
        """Return the indexes of the rows of a read batch that are not shed; the batch must not be empty."""
        kept_by_block = [
            start + self._kept(read_batch, start, stop) for start, stop in _blocks(read_batch.positions)
        ]
        kept: Ints = kept_by_block[0] if len(kept_by_block) == 1 else np.concatenate(kept_by_block)
        self.record.add(read_batch.arrivals, read_batch.rows - len(kept))
        return kept

    def _kept(self, read_batch: ReadBatch, start: int, stop: int) -> Ints:
        """Return the rows in [start, stop), all of one block, that are not shed, as indexes from `start`."""
        positions = read_batch.positions[start:stop]
        block, numbers = int(positions[0]) // BLOCK, self._mixed(positions)
        if self._utility is not None:
            columns = read_batch.columns(self._utility.columns)
            sliced = {name: column.slice(start, stop) for name, column in columns.items()}
            return self._utility.kept(block, sliced, numbers, self.quota)
        if self.quota == BLOCK:
            return _NONE
        kept: Ints = np.flatnonzero(numbers >= self._least_kept(block))
        return kept

    def _least_kept(self, block: int) -> np.uint64:
        """Return the hash from which on positions are not shed: exactly the quota of a block is below it."""
        if self._known != (block, self.quota):
            numbers = self._mixed(np.arange(block * BLOCK, (block + 1) * BLOCK))
            self._known, self._least = (block, self.quota), np.partition(numbers, self.quota)[self.quota]
        return self._least

    def _mixed(self, positions: Ints) -> _Words:
        words: _Words = positions.astype(np.uint64)
        words = (words + np.uint64(1)) * _STEP ^ self._salt  # wraps around on purpose
        words = (words ^ (words >> np.uint64(30))) * _FIRST
        words = (words ^ (words >> np.uint64(27))) * _SECOND
        mixed: _Words = words ^ (words >> np.uint64(31))
        return mixed

    def save(self) -> dict[str, Any]:
        """Return the current share, the shedding intervals and the state of the utility."""
        return {
            "share": self.share,
            "record": self.record.save(),
            "worth": None if self._utility is None else self._utility.save(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state of another shedder of the same stream."""
        self.share = state["share"]
        self.quota = int(self.share * BLOCK)
        self.record.load(state["record"])
        if self._utility is not None and state["worth"] is not None:
            self._utility.load(state["worth"])


def _blocks(positions: Ints) -> Iterator[tuple[int, int]]:
    """Yield the start and stop index of the rows of each block; positions are increasing."""
    if positions[0] // BLOCK == positions[-1] // BLOCK:
        yield 0, len(positions)
        return
    blocks = positions // BLOCK
    cuts = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), len(positions)]
    yield from pairwise(cuts)
