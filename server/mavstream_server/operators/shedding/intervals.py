"""Shedding intervals: a bounded record of when rows of a stream were shed, and how many."""

from __future__ import annotations

from collections import deque
from typing import Any

from mavstream_server.columns.column import Ints
from mavstream_server.core.metrics import SheddingInterval

_MAX_INTERVALS = 32


class SheddingIntervals:
    """The most recent shedding intervals of a source, at most 32; the counters include older ones."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._intervals: deque[SheddingInterval] = deque(maxlen=_MAX_INTERVALS)
        self._share: float | None = None  # of an interval that has seen no row yet

    def begin(self, share: float) -> None:
        """Begin an interval; it is recorded with its first row."""
        self._share = share

    def add(self, arrivals: Ints, shed: int) -> None:
        """Add rows to the current interval by their arrivals (UTC, ns); `shed` of them were shed."""
        first, last, seen = int(arrivals[0]), int(arrivals[-1]), len(arrivals)
        if self._share is not None:
            self._intervals.append(SheddingInterval(self._stream, self._share, first, last, seen, shed))
            self._share = None
            return
        current = self._intervals[-1]
        self._intervals[-1] = current._replace(until=last, seen=current.seen + seen, shed=current.shed + shed)

    @property
    def intervals(self) -> tuple[SheddingInterval, ...]:
        """The shedding intervals, oldest first."""
        return tuple(self._intervals)

    def save(self) -> dict[str, Any]:
        """Return the record for a snapshot."""
        return {"share": self._share, "intervals": [list(interval) for interval in self._intervals]}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the record from a snapshot."""
        self._share = state["share"]
        self._intervals = deque(
            (SheddingInterval(*saved) for saved in state["intervals"]), maxlen=_MAX_INTERVALS
        )
