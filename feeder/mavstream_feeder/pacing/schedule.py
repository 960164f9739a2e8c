"""The schedule of arrivals: many streams, one heap of next due times (thesis, 4.4).

Pure: it neither sleeps nor reads a clock. Ties break by the order of joining the heap.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

from mavstream_feeder.pacing.arrivals import Arrivals, Times, arrivals_of
from mavstream_feeder.pacing.rates import Rate


class Due(NamedTuple):
    """Tuples of one stream that fall due together."""

    stream: str
    times: Times


class Schedule:
    """Which streams have tuples due, and when the next one is."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._heap: list[tuple[float, int, str]] = []
        # The number of each stream's entry in the heap; an entry with another number counts no more.
        self._entries: dict[str, int] = {}
        self._arrivals: dict[str, Arrivals] = {}
        # Streams that wait for credit stay out of the heap; their arrivals wait with them.
        self._held: set[str] = set()
        # So do streams whose arrivals somebody else looks after.
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
        """Let a stream join; its first tuple falls due one gap after `now`."""
        self.join(stream, arrivals_of(rate, now, self._seed, stream))

    def join(self, stream: str, arrivals: Arrivals) -> None:
        """Let a stream join whose arrivals are known."""
        if stream in self._arrivals:
            raise ValueError(f"stream '{stream}' is already in the schedule: remove it first")
        self._arrivals[stream] = arrivals
        self._push(stream)

    def remove(self, stream: str) -> None:
        """Take a stream out; its tuples that are not taken never fall due."""
        del self._arrivals[stream]
        self._held.discard(stream)
        self._lent.discard(stream)
        self._entries.pop(stream, None)

    def hold(self, stream: str) -> None:
        """Let a stream's tuples wait, due or not, until it is released; the others go on."""
        if stream in self._arrivals and stream not in self._held:
            self._held.add(stream)
            self._entries.pop(stream, None)

    def release(self, stream: str) -> None:
        """Let a held stream go on; what fell due meanwhile is due at once."""
        if stream in self._held:
            self._held.discard(stream)
            self._push(stream)

    def held(self, stream: str) -> bool:
        """Whether a stream waits for its release."""
        return stream in self._held

    def all_held(self) -> list[str]:
        """Return the streams that wait for their release."""
        return list(self._held)

    def lend(self, stream: str) -> None:
        """Leave it to somebody else to take a stream's tuples, until it is given back."""
        self._lent.add(stream)
        self._entries.pop(stream, None)

    def give_back(self, stream: str) -> None:
        """Take a stream's tuples here again; what fell due meanwhile and was not taken is due at once."""
        if stream in self._lent:
            self._lent.discard(stream)
            self._push(stream)

    def next_due(self) -> float | None:
        """Return when the next tuple falls due; None when none will before a release or a join."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float, most: int) -> list[Due]:
        """Return what is due, by first due time, one entry a stream with at most `most` tuples.

        Streams whose rate has ended leave the schedule.
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
