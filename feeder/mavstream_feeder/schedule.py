"""The schedule of arrivals: many streams, one heap of next due times (thesis, 4.4).

Pure: it neither sleeps nor reads a clock. Ties break by the order of joining the heap.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mavstream_feeder.arrivals import Arrivals, Times, arrivals_of
from mavstream_feeder.rates import Rate

_NONE: Times = np.empty(0)


class Due(NamedTuple):
    """Tuples of one stream that fall due together."""

    stream: str
    times: Times


class Schedule:
    """Which streams have tuples due, and when the next one is."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._heap: list[tuple[float, int, str]] = []
        self._arrivals: dict[str, Arrivals] = {}
        # Streams that wait for credit stay out of the heap; their arrivals wait with them.
        self._held: set[str] = set()
        self._running = 0

    def __len__(self) -> int:
        return len(self._arrivals)

    def __contains__(self, stream: object) -> bool:
        return stream in self._arrivals

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrivals)

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
        self._heap = [entry for entry in self._heap if entry[2] != stream]
        heapq.heapify(self._heap)

    def hold(self, stream: str) -> None:
        """Let a stream's tuples wait, due or not, until it is released; the others go on."""
        if stream in self._arrivals and stream not in self._held:
            self._held.add(stream)
            self._heap = [entry for entry in self._heap if entry[2] != stream]
            heapq.heapify(self._heap)

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

    def next_due(self) -> float | None:
        """Return when the next tuple falls due; None when none will before a release or a join."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: float, most: int) -> list[Due]:
        """Return what is due, by first due time, one entry a stream with at most `most` tuples.

        Streams whose rate has ended leave the schedule.
        """
        due: list[Due] = []
        while self._heap and self._heap[0][0] <= now:
            stream = heapq.heappop(self._heap)[2]
            due.append(Due(stream, self._arrivals[stream].take(now, most)))
        for each in due:
            self._push(each.stream)
        return due

    def upcoming(self, stream: str) -> Times:
        """Return due times of a stream behind those taken, as far as they are known."""
        arrivals = self._arrivals.get(stream)
        return _NONE if arrivals is None else arrivals.upcoming()

    def _push(self, stream: str) -> None:
        head = self._arrivals[stream].head()
        if head == math.inf:
            del self._arrivals[stream]
            return
        self._running += 1
        heapq.heappush(self._heap, (head, self._running, stream))
