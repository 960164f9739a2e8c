"""Load shedding: which rows of a stream a query leaves out.

That depends on a row's position alone. So neither the policy nor how rows are cut into batches decides, two
queries that shed the same share lose the same rows, and a larger share loses those of a smaller one too.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.column import Ints

_Words: TypeAlias = npt.NDArray[np.uint64]

# The finalizer of SplitMix64: every bit of a position moves half of the bits of the result.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ALL = 1 << 64


class Shedder:
    """Leaves out a share of all rows, spread evenly."""

    __slots__ = ("_least", "share")

    def __init__(self, share: float) -> None:
        """`share` is from 0, for none, to 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"the share of rows to shed must be from 0 to 1, {share} came")
        self.share = share
        self._least = min(int(share * _ALL), _ALL - 1)

    def kept(self, positions: Ints) -> Ints:
        """Return which of the rows at these positions stay, by their place among them."""
        if self.share == 1:
            return np.empty(0, dtype=np.int64)
        kept: Ints = np.flatnonzero(_mixed(positions) >= np.uint64(self._least))
        return kept


def _mixed(positions: Ints) -> _Words:
    words: _Words = positions.astype(np.uint64)
    words = (words + np.uint64(1)) * _STEP  # wraps around, as it is meant to
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    mixed: _Words = words ^ (words >> np.uint64(31))
    return mixed
