"""Spells: a short record of when rows of a stream were left out, and how many."""

from __future__ import annotations

from collections import deque
from typing import Any

from mavstream_server.columns.column import Ints
from mavstream_server.core.metrics import SheddingInterval

_MOST = 32


class SheddingIntervals:
    """The last so many spells of a source; older ones are forgotten, its counters go on."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._spells: deque[SheddingInterval] = deque(maxlen=_MOST)
        self._share: float | None = None  # of a spell that has seen no row yet

    def begin(self, share: float) -> None:
        """Begin a spell; it is worth a record when a row comes."""
        self._share = share

    def add(self, arrivals: Ints, shed: int) -> None:
        """Count rows that came, by when they did, and how many of them were left out."""
        first, last, seen = int(arrivals[0]), int(arrivals[-1]), len(arrivals)
        if self._share is not None:
            self._spells.append(SheddingInterval(self._stream, self._share, first, last, seen, shed))
            self._share = None
            return
        spell = self._spells[-1]
        self._spells[-1] = spell._replace(until=last, seen=spell.seen + seen, shed=spell.shed + shed)

    @property
    def spells(self) -> tuple[SheddingInterval, ...]:
        """The spells, oldest first."""
        return tuple(self._spells)

    def save(self) -> dict[str, Any]:
        """Return the record."""
        return {"share": self._share, "spells": [list(spell) for spell in self._spells]}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a record."""
        self._share = state["share"]
        self._spells = deque((SheddingInterval(*spell) for spell in state["spells"]), maxlen=_MOST)
