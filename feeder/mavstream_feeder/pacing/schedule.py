"""The schedule: a heap of the next due times of all streams (thesis, 4.4).

It neither sleeps nor reads a clock. Ties are broken by the order in which streams entered the heap.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

from mavstream_feeder.pacing.arrivals import Arrivals, Times, arrivals_of
from mavstream_feeder.pacing.rates import Rate


class Due(NamedTuple):
    """Rows of one stream that fall due together."""

    stream: str
    times: Times


class Schedule:
    """Knows which streams have due rows, and when the next row falls due."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._heap: list[tuple[float, int, str]] = []
        # The number of each stream's valid entry in the heap; entries with other numbers are obsolete.
        self._entries: dict[str, int] = {}
        self._arrivals: dict[str, Arrivals] = {}
        # Streams that wait for credit are not in the heap; their arrivals wait with them.
        self._held: set[str] = set()
        # Nor are streams whose arrivals a send group takes.
        self._lent: set[str] = set()
        self._running = 0

    def __len__(self) -> int:
        return len(self._arrivals)

    def __contains__(self, stream: object) -> bool:
        return stream in self._arrivals

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrivals)

    def __getitem__(self, stream: str) -> Arrivals:
        return self._arrivals[stream]

    def add(self, stream: str, rate: Rate, now: float) -> None:
        """Add a stream; its first row falls due one gap after `now`."""
        self.join(stream, arrivals_of(rate, now, self._seed, stream))

    def join(self, stream: str, arrivals: Arrivals) -> None:
        """Add a stream with its arrivals."""
        if stream in self._arrivals:
            raise ValueError(f"stream '{stream}' is already in the schedule: remove it first")
        self._arrivals[stream] = arrivals
        self._push(stream)

    def remove(self, stream: str) -> None:
        """Remove a stream; its remaining rows never fall due."""
        del self._arrivals[stream]
        self._held.discard(stream)
        self._lent.discard(stream)
        self._entries.pop(stream, None)

    def hold(self, stream: str) -> None:
        """Hold a stream: its rows wait until it is released, while other streams go on."""
        if stream in self._arrivals and stream not in self._held:
            self._held.add(stream)
            self._entries.pop(stream, None)

    def release(self, stream: str) -> None:
        """Release a held stream; what fell due meanwhile is due at once."""
        if stream in self._held:
            self._held.discard(stream)
            self._push(stream)

    def held(self, stream: str) -> bool:
        """Whether a stream is held."""
        return stream in self._held

    def all_held(self) -> list[str]:
        """Return the held streams."""
        return list(self._held)

    def lend(self, stream: str) -> None:
        """Leave a stream's arrivals to the caller until it is given back."""
        self._lent.add(stream)
        self._entries.pop(stream, None)

    def give_back(self, stream: str) -> None:
        """Take over a lent stream again; what fell due meanwhile and was not taken is due at once."""
        if stream in self._lent:
            self._lent.discard(stream)
            self._push(stream)

    def next_due(self) -> float | None:
        """Return the next due time; None if nothing falls due before a stream is released or added."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float, most: int) -> list[Due]:
        """Take what is due: one entry per stream with at most `most` rows, in the order of due times.

        Streams without further due times are removed.
        """
        due: list[Due] = []
        while (next_due := self.next_due()) is not None and next_due <= now:
            stream = heapq.heappop(self._heap)[2]
            due.append(Due(stream, self._arrivals[stream].take(now, most)))
        for each in due:
            self._push(each.stream)
        return due

    def _push(self, stream: str) -> None:
        head = self._arrivals[stream].head()
        if head == math.inf:
            self.remove(stream)
            return
        self._running += 1
        self._entries[stream] = self._running
        heapq.heappush(self._heap, (head, self._running, stream))
