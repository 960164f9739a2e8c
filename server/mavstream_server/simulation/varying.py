"""Varying costs: work per tuple that is drawn anew for every tuple."""

from __future__ import annotations

import numpy as np

_BLOCK = 1024


class VaryingCosts:
    """Exponential costs; a tuple that comes again, as its work was cut off, costs what it did before."""

    __slots__ = ("_at", "_block", "_generator")

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._generator = np.random.default_rng(seed)
        self._block: list[float] = []
        self._at = 0

    def draw(self, tuples: int, mean: float) -> list[float]:
        """Return the costs of the next tuples."""
        if self._at + tuples > len(self._block):
            more = self._generator.exponential(size=max(_BLOCK, tuples)).tolist()
            self._block = self._block[self._at :] + more
            self._at = 0
        self._at += tuples
        return self.last(tuples, mean)

    def last(self, tuples: int, mean: float) -> list[float]:
        """Return the costs of the tuples that were drawn last."""
        return [cost * mean for cost in self._block[self._at - tuples : self._at]]

    def put_back(self, tuples: int) -> None:
        """Forget the last tuples: they will come again."""
        self._at -= tuples
