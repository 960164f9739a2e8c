"""Selection of the tuples that pass an operator."""

from __future__ import annotations

from itertools import compress

import numpy as np

_BLOCK = 2048
_ROUNDING = 1e-9  # tolerance within which a sum of fractions counts as an integer


class Selection:
    """Number of output tuples for each input tuple, in order of input.

    The output of the k-th tuple depends neither on when it is processed nor on its batch, so the number of
    answers is the same for every policy. Drawn in blocks, because one draw costs as much as a hundred.
    """

    __slots__ = ("_at", "_block", "_carried", "_generator", "_random", "_several", "selectivity")

    def __init__(self, selectivity: float, random: bool, seed: np.random.SeedSequence) -> None:
        self._random = random
        self._generator = np.random.default_rng(seed) if random else None
        self._carried = 0.0
        self.change(selectivity)

    def change(self, selectivity: float) -> None:
        """Change the selectivity from now on."""
        self.selectivity = selectivity
        self._several = selectivity > 1
        self._block = b""
        self._at = 0

    def pick(self, batch: list[int]) -> list[int]:
        """Return the output for the next tuples."""
        at, block = self._at, self._block
        end = at + len(batch)
        if end > len(block):
            block = self._more(len(batch))
            at, end = 0, len(batch)
        self._at = end
        if self._several:
            return [one for one, times in zip(batch, block[at:end], strict=True) for _ in range(times)]
        if end == at + 1:
            return batch if block[at] else []
        return list(compress(batch, block[at:end]))

    def put_back(self, tuples: int) -> None:
        """Step back by the last tuples: they will be repeated."""
        self._at -= tuples

    def _more(self, least: int) -> bytes:
        drawn = self._draw(max(_BLOCK, least)).astype(np.uint8).tobytes()
        self._block = self._block[self._at :] + drawn
        self._at = 0
        return self._block

    def _draw(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        whole = int(self.selectivity)
        if self._generator is not None:
            return whole + (self._generator.random(count) < self.selectivity - whole).astype(np.int64)
        sums = self._carried + self.selectivity * np.arange(1, count + 1) + _ROUNDING
        passed = np.floor(sums).astype(np.int64)
        self._carried = float(sums[-1] - _ROUNDING - passed[-1])
        drawn: np.ndarray[tuple[int], np.dtype[np.int64]] = np.diff(passed, prepend=0)
        return drawn
