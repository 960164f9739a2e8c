"""Watermarks: up to which time a stream is complete, worked out row by row and free of I/O.

An event-time stream's watermark is the running maximum of each producer's times less the lateness, the
minimum of that over live producers, and never decreases. Producers live from their first row, or from a
join. Idle and ended ones leave the minimum and come back when they send again. When nobody lives any more
the watermark rises to the largest time less the lateness, whoever sent it, so that the order in which
producers fell silent does not matter; if it was an end that left nobody, lateness is waived too.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple, Protocol

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.columns.column import Ints
from mavstream_server.log.format.layout import FrameKind


class Stamp(NamedTuple):
    """What a frame must carry for its rows' watermarks to be known without what came before. In us."""

    before: int
    """The watermark ahead of the frame."""
    others: int
    """The least of the other live producers' maxima less the lateness; END_OF_TIME without others."""
    own: int
    """This producer's maximum ahead of the frame less the lateness; BEGIN_OF_TIME if it sent nothing."""
    after: int
    """The watermark behind the frame."""
    max_before: int
    """The largest time of any row ahead of the frame; BEGIN_OF_TIME if there is none."""


class ProducerTime(NamedTuple):
    """What is remembered of a producer."""

    producer: int
    maximum: int
    live: bool


class Watermarks(Protocol):
    """The state of a stream's time; `value` is the watermark, `max_time` the largest time seen."""

    value: int
    max_time: int

    def rows(self, producer: int, largest: int) -> Stamp:
        """Take a frame of at least one row whose largest time is given."""

    def mark(self, kind: FrameKind, producer: int, time: int) -> Stamp:
        """Take a mark; `time` is the clock's for CLOCK, the watermark for WATERMARK, else without meaning."""

    def producers(self) -> list[ProducerTime]:
        """Return what is remembered of each producer."""

    def restore(self, value: int, max_time: int, producers: Iterable[ProducerTime]) -> None:
        """Return to an earlier state."""

    def forget(self, producers: Iterable[int]) -> None:
        """Drop producers that are not live: should they come back, they are new."""


class EventWatermarks:
    """Watermarks of a stream with event time."""

    def __init__(self, lateness_us: int) -> None:
        self.value = BEGIN_OF_TIME
        self.max_time = BEGIN_OF_TIME
        self._lateness = lateness_us
        self._floor = BEGIN_OF_TIME + lateness_us
        self._maxima: dict[int, int] = {}
        self._live: set[int] = set()
        # At least one entry (maximum, producer) per live producer, at or below its present maximum:
        # entries are brought up to date only when they surface, so a frame costs O(log producers).
        self._heap: list[tuple[int, int]] = []

    def rows(self, producer: int, largest: int) -> Stamp:
        """Take a frame of at least one row whose largest time is given."""
        maximum = self._maxima.get(producer, BEGIN_OF_TIME)
        alone = len(self._live) == 1 and producer in self._live
        others = END_OF_TIME if alone else self._others(producer)
        before, max_before = self.value, self.max_time
        own = self._lowered(maximum)
        if largest > maximum:
            maximum = self._maxima[producer] = largest
        if not alone and producer not in self._live:
            self._maxima[producer] = maximum
            self._enliven(producer)
        if largest > max_before:
            self.max_time = largest
        after = min(others, self._lowered(maximum))
        if after > before:
            self.value = after
        return Stamp(before, others, own, self.value, max_before)

    def mark(self, kind: FrameKind, producer: int, time: int) -> Stamp:
        """Take a mark; a clock says nothing about event time."""
        before = self.value
        if kind is FrameKind.JOIN:
            self._maxima.setdefault(producer, BEGIN_OF_TIME)
            if producer not in self._live:
                self._enliven(producer)
        elif kind is FrameKind.COMPLETE:
            self.value = END_OF_TIME
        elif kind is FrameKind.WATERMARK:
            self.value = max(before, time)
        elif kind in (FrameKind.IDLE, FrameKind.END) and producer in self._maxima:
            self._live.discard(producer)
            self.value = max(before, self._without(ended=kind is FrameKind.END))
        return Stamp(before, END_OF_TIME, BEGIN_OF_TIME, self.value, self.max_time)

    def producers(self) -> list[ProducerTime]:
        """Return what is remembered of each producer."""
        return [ProducerTime(p, maximum, p in self._live) for p, maximum in self._maxima.items()]

    def restore(self, value: int, max_time: int, producers: Iterable[ProducerTime]) -> None:
        """Return to an earlier state."""
        self.value, self.max_time = value, max_time
        known = list(producers)
        self._maxima = {item.producer: item.maximum for item in known}
        self._live = {item.producer for item in known if item.live}
        self._heap = sorted((self._maxima[producer], producer) for producer in self._live)

    def forget(self, producers: Iterable[int]) -> None:
        """Drop producers that are not live."""
        for producer in producers:
            if producer not in self._live:
                self._maxima.pop(producer, None)

    def _lowered(self, time: int) -> int:
        return (time if time > self._floor else self._floor) - self._lateness

    def _enliven(self, producer: int) -> None:
        self._live.add(producer)
        heappush(self._heap, (self._maxima[producer], producer))

    def _least(self) -> tuple[int, int] | None:
        heap = self._heap
        while heap:
            maximum, producer = heap[0]
            if producer not in self._live:
                heappop(heap)
            elif maximum != self._maxima[producer]:
                heapreplace(heap, (self._maxima[producer], producer))
            else:
                return heap[0]
        return None

    def _others(self, producer: int) -> int:
        mine: tuple[int, int] | None = None
        # A producer that fell silent and came back may have several entries.
        while (least := self._least()) is not None and least[1] == producer:
            mine = heappop(self._heap)
        if mine is not None:
            heappush(self._heap, mine)
        return END_OF_TIME if least is None else self._lowered(least[0])

    def _without(self, *, ended: bool) -> int:
        """Return the watermark that holds when a producer has just left."""
        least = self._least()
        if least is not None:
            return self._lowered(least[0])
        if ended and self.max_time > BEGIN_OF_TIME:
            return min(self.max_time, END_OF_TIME - 1) + 1
        return self._lowered(self.max_time)


class ArrivalWatermarks:
    """Watermarks of a stream whose time is arrival: it only ever grows, so producers do not matter."""

    def __init__(self) -> None:
        self.value = BEGIN_OF_TIME
        self.max_time = BEGIN_OF_TIME

    def rows(self, producer: int, largest: int) -> Stamp:
        """Take a frame of rows that arrived at the given time."""
        before, max_before = self.value, self.max_time
        self.max_time = max(max_before, largest)
        self.value = max(before, largest)
        return Stamp(before, END_OF_TIME, before, self.value, max_before)

    def mark(self, kind: FrameKind, producer: int, time: int) -> Stamp:
        """Take a mark: clocks, given watermarks and completion count, the rest is for event time."""
        before = self.value
        if kind is FrameKind.COMPLETE:
            self.value = END_OF_TIME
        elif kind in (FrameKind.CLOCK, FrameKind.WATERMARK):
            self.value = max(before, time)
        return Stamp(before, END_OF_TIME, BEGIN_OF_TIME, self.value, self.max_time)

    def producers(self) -> list[ProducerTime]:
        """Return nothing: no producer is remembered."""
        return []

    def restore(self, value: int, max_time: int, producers: Iterable[ProducerTime]) -> None:
        """Return to an earlier state."""
        self.value, self.max_time = value, max_time

    def forget(self, producers: Iterable[int]) -> None:
        """Have nothing to drop."""


def row_watermarks(times: Ints, before: int, others: int, own: int, lateness: int) -> Ints:
    """Return the watermark just ahead of each row of a frame with these times and this stamp."""
    out = np.empty(len(times), dtype=np.int64)
    if len(times):
        # Ahead of the first row it is `before`: that already has what is known of this producer.
        out[0] = before
        reached = np.maximum.accumulate(times[:-1], out=out[1:])
        np.maximum(reached, own + lateness, out=reached)
        np.subtract(reached, lateness, out=reached)
        np.minimum(reached, others, out=reached)
        np.maximum(reached, before, out=reached)
    return out
