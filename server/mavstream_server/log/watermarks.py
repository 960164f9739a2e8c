"""Watermarks: the time up to which a stream is complete, computed per row and without I/O.

The watermark of a stream with event time is the minimum, over its live producers, of the largest time that
each has sent less the lateness; it never decreases. A producer is live from its first row or JOIN mark until
it is idle or ends, and again when it sends more rows. When no producer is live any more, the watermark rises
to the largest time of all producers less the lateness, so that the order in which they left does not matter;
if the last one ended rather than became idle, the lateness is not subtracted.
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
    """What a frame stores so that its rows' watermarks can be computed without earlier frames, in us."""

    before: int
    """The watermark before the frame."""
    others: int
    """The minimum of the other live producers' maxima less the lateness; END_OF_TIME without others."""
    own: int
    """This producer's maximum before the frame less the lateness; BEGIN_OF_TIME if it sent nothing."""
    after: int
    """The watermark after the frame."""
    max_before: int
    """The largest time of all rows before the frame; BEGIN_OF_TIME if there are none."""


class ProducerTime(NamedTuple):
    """The state of a producer: its largest time (us) and whether it is live."""

    producer: int
    maximum: int
    live: bool


class Watermarks(Protocol):
    """Tracks a stream's time (us): `value` is the watermark, `max_time` the largest time so far."""

    value: int
    max_time: int

    def rows(self, producer: int, largest: int) -> Stamp:
        """Account for a frame of one or more rows with this largest time."""

    def mark(self, kind: FrameKind, producer: int, time: int) -> Stamp:
        """Account for a mark; `time` is that of a CLOCK or WATERMARK mark, and ignored for others."""

    def producers(self) -> list[ProducerTime]:
        """Return the state of each producer."""

    def restore(self, value: int, max_time: int, producers: Iterable[ProducerTime]) -> None:
        """Return to an earlier state."""

    def forget(self, producers: Iterable[int]) -> None:
        """Drop producers that are not live; one that sends again counts as new."""


class EventWatermarks:
    """Watermarks of a stream with event time."""

    def __init__(self, lateness_us: int) -> None:
        self.value = BEGIN_OF_TIME
        self.max_time = BEGIN_OF_TIME
        self._lateness = lateness_us
        self._floor = BEGIN_OF_TIME + lateness_us
        self._maxima: dict[int, int] = {}
        self._live: set[int] = set()
        # At least one entry (maximum, producer) per live producer, at or below its current maximum:
        # entries are updated only when they reach the top, so a frame costs O(log producers).
        self._heap: list[tuple[int, int]] = []

    def rows(self, producer: int, largest: int) -> Stamp:
        """Account for a frame of one or more rows with this largest time."""
        maximum = self._maxima.get(producer, BEGIN_OF_TIME)
        alone = len(self._live) == 1 and producer in self._live
        others = END_OF_TIME if alone else self._others(producer)
        before, max_before = self.value, self.max_time
        own = self._lowered(maximum)
        if largest > maximum:
            maximum = self._maxima[producer] = largest
        if not alone and producer not in self._live:
            self._maxima[producer] = maximum
            self._set_live(producer)
        if largest > max_before:
            self.max_time = largest
        after = min(others, self._lowered(maximum))
        if after > before:
            self.value = after
        return Stamp(before, others, own, self.value, max_before)

    def mark(self, kind: FrameKind, producer: int, time: int) -> Stamp:
        """Account for a mark; CLOCK marks do not affect event time."""
        before = self.value
        if kind is FrameKind.JOIN:
            self._maxima.setdefault(producer, BEGIN_OF_TIME)
            if producer not in self._live:
                self._set_live(producer)
        elif kind is FrameKind.COMPLETE:
            self.value = END_OF_TIME
        elif kind is FrameKind.WATERMARK:
            self.value = max(before, time)
        elif kind in (FrameKind.IDLE, FrameKind.END) and producer in self._maxima:
            self._live.discard(producer)
            self.value = max(before, self._after_leaving(ended=kind is FrameKind.END))
        return Stamp(before, END_OF_TIME, BEGIN_OF_TIME, self.value, self.max_time)

    def producers(self) -> list[ProducerTime]:
        """Return the state of each producer."""
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

    def _set_live(self, producer: int) -> None:
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
        own: tuple[int, int] | None = None
        # A producer that was idle and sent again may have several entries.
        while (least := self._least()) is not None and least[1] == producer:
            own = heappop(self._heap)
        if own is not None:
            heappush(self._heap, own)
        return END_OF_TIME if least is None else self._lowered(least[0])

    def _after_leaving(self, *, ended: bool) -> int:
        """Return the watermark after a producer has become idle or ended."""
        least = self._least()
        if least is not None:
            return self._lowered(least[0])
        if ended and self.max_time > BEGIN_OF_TIME:
            return min(self.max_time, END_OF_TIME - 1) + 1
        return self._lowered(self.max_time)


class ArrivalWatermarks:
    """Watermarks of a stream without event time: arrival times never decrease, so producers do not matter."""

    def __init__(self) -> None:
        self.value = BEGIN_OF_TIME
        self.max_time = BEGIN_OF_TIME

    def rows(self, producer: int, largest: int) -> Stamp:
        """Account for a frame of rows that arrived at a time (us)."""
        before, max_before = self.value, self.max_time
        if largest > max_before:
            self.max_time = largest
        if largest > before:
            self.value = largest
        return Stamp(before, END_OF_TIME, before, self.value, max_before)

    def mark(self, kind: FrameKind, producer: int, time: int) -> Stamp:
        """Account for a mark; only CLOCK, WATERMARK and COMPLETE affect arrival time."""
        before = self.value
        if kind is FrameKind.COMPLETE:
            self.value = END_OF_TIME
        elif kind in (FrameKind.CLOCK, FrameKind.WATERMARK):
            self.value = max(before, time)
        return Stamp(before, END_OF_TIME, BEGIN_OF_TIME, self.value, self.max_time)

    def producers(self) -> list[ProducerTime]:
        """Return no producers: their state is not tracked."""
        return []

    def restore(self, value: int, max_time: int, producers: Iterable[ProducerTime]) -> None:
        """Return to an earlier state."""
        self.value, self.max_time = value, max_time

    def forget(self, producers: Iterable[int]) -> None:
        """Do nothing: no producers are tracked."""


def row_watermarks(times: Ints, before: int, others: int, own: int, lateness: int) -> Ints:
    """Return the watermark directly before each row of a frame with these times and this stamp (us)."""
    out = np.empty(len(times), dtype=np.int64)
    if len(times):
        # Before the first row it is `before`, which already takes this producer into account.
        out[0] = before
        reached = np.maximum.accumulate(times[:-1], out=out[1:])
        np.maximum(reached, own + lateness, out=reached)
        np.subtract(reached, lateness, out=reached)
        np.minimum(reached, others, out=reached)
        np.maximum(reached, before, out=reached)
    return out
