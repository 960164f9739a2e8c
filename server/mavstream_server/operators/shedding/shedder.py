"""Load shedding: which rows of a stream a query leaves out, and when.

Positions are counted in blocks of 4,096. Of each block at most the share in force is left out, whatever the
rows hold. What goes depends on positions, and on what rows are worth where a query says so; so neither the
policy nor how rows are cut into batches decides. Without worth, two queries that shed the same share of a
stream lose the same rows, and a larger share loses those of a smaller one too.
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
"""Positions of which at most a share is left out."""
WEIGHT = "#weight"
"""The hidden column that says how many rows a kept one stands for; no field can have this name."""

_NONE: Ints = np.empty(0, dtype=np.int64)
_Words: TypeAlias = npt.NDArray[np.uint64]

# The finalizer of SplitMix64: every bit of a position moves half of the bits of the result.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Shedder:
    """Says which rows of one stream a query leaves out; none until a share is set."""

    __slots__ = ("_known", "_least", "_salt", "_worth", "quota", "record", "share")

    def __init__(self, stream: str, worth: Expression | None = None) -> None:
        """`worth` is a number or a condition over the stream's fields: rows of least worth go first."""
        # Streams do not lose rows at the same positions: errors of scaled sums then add up as squares do.
        self._salt = np.uint64(crc32(stream.encode()))
        self._worth = None if worth is None else LeastUtility(worth, BLOCK)
        self.record = SheddingIntervals(stream)
        self._known, self._least = (-1, -1), np.uint64(0)
        self.share = 0.0
        self.quota = 0
        """How many rows of a block are left out at most; 0 for none."""

    def set(self, share: float) -> None:
        """Leave out a share of the rows from here on: from 0, for none, to 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"the share of rows to shed must be from 0 to 1, {share} came")
        if share == self.share:
            return
        self.share, self.quota = share, int(share * BLOCK)
        self.record.begin(share)

    def rank_by(self, worth: Expression | None) -> None:
        """Let rows of least worth go first from here on, or any rows."""
        self._worth = None if worth is None else LeastUtility(worth, BLOCK)

    @property
    def weight(self) -> float:
        """How many rows of the stream a kept row stands for, if rows go at random."""
        return BLOCK / (BLOCK - self.quota) if self.quota < BLOCK else 1.0

    def kept(self, portion: ReadBatch) -> Ints:
        """Return which rows of a portion stay, by their place in it; there must be some rows."""
        parts = [start + self._kept(portion, start, stop) for start, stop in _blocks(portion.positions)]
        kept: Ints = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.record.add(portion.arrivals, portion.rows - len(kept))
        return kept

    def _kept(self, portion: ReadBatch, start: int, stop: int) -> Ints:
        """Return which rows of a portion's part inside one block stay, by their place in the part."""
        positions = portion.positions[start:stop]
        block, numbers = int(positions[0]) // BLOCK, self._mixed(positions)
        if self._worth is not None:
            columns = portion.columns(self._worth.columns)
            part = {name: column.slice(start, stop) for name, column in columns.items()}
            return self._worth.kept(block, part, numbers, self.quota)
        if self.quota == BLOCK:
            return _NONE
        kept: Ints = np.flatnonzero(numbers >= self._least_kept(block))
        return kept

    def _least_kept(self, block: int) -> np.uint64:
        """Return the number below which exactly the quota of a block's positions lie."""
        if self._known != (block, self.quota):
            numbers = self._mixed(np.arange(block * BLOCK, (block + 1) * BLOCK))
            self._known, self._least = (block, self.quota), np.partition(numbers, self.quota)[self.quota]
        return self._least

    def _mixed(self, positions: Ints) -> _Words:
        words: _Words = positions.astype(np.uint64)
        words = (words + np.uint64(1)) * _STEP ^ self._salt  # wraps around, as it is meant to
        words = (words ^ (words >> np.uint64(30))) * _FIRST
        words = (words ^ (words >> np.uint64(27))) * _SECOND
        mixed: _Words = words ^ (words >> np.uint64(31))
        return mixed

    def save(self) -> dict[str, Any]:
        """Return the share in force, the record, and what is known of worth."""
        return {
            "share": self.share,
            "record": self.record.save(),
            "worth": None if self._worth is None else self._worth.save(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on as another shedder of the same stream would."""
        self.share = state["share"]
        self.quota = int(self.share * BLOCK)
        self.record.load(state["record"])
        if self._worth is not None and state["worth"] is not None:
            self._worth.load(state["worth"])


def _blocks(positions: Ints) -> Iterator[tuple[int, int]]:
    """Yield where the rows of each block begin and end; positions only ever grow."""
    if positions[0] // BLOCK == positions[-1] // BLOCK:
        yield 0, len(positions)
        return
    blocks = positions // BLOCK
    cuts = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), len(positions)]
    yield from pairwise(cuts)
