"""A sparse index of a segment's frames: finds them by position, arrival time or byte offset."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

# The index has one entry per this many bytes: a search steps over the frames of at most so many.
_ENTRY_BYTES = 1 << 16


class FrameStep(NamedTuple):
    """A frame, or damaged frames, as a search sees it."""

    position: int
    rows: int
    arrival: int
    """The arrival time (ns); of damaged frames that of the last frame before them."""
    behind: int
    """The byte offset of the next one."""
    damaged: bool


StepAt = Callable[[int], FrameStep]
"""Returns the step at a byte offset."""


class SparseIndex:
    """Entries for some frames of a segment, in the order of the frames; frames in between are stepped over.

    `first` is the byte offset of the first frame, from which searches before the first entry start. A search
    needs the entries of all frames before its limit.
    """

    __slots__ = ("_arrivals", "_first", "_offsets", "_positions")

    def __init__(self, first: int) -> None:
        self._first = first
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._arrivals: list[int] = []

    def add(self, offset: int, position: int, arrival: int) -> int:
        """Add the frame at a byte offset; return the offset at or behind which the next entry is due."""
        self._offsets.append(offset)
        self._positions.append(position)
        self._arrivals.append(arrival)
        return offset + _ENTRY_BYTES

    @property
    def last(self) -> int:
        """The byte offset of the last entry."""
        return self._before(len(self._offsets))

    def find_position(self, position: int, limit: int, step_at: StepAt) -> int:
        """Return the byte offset of the frame with a row, or of marks directly before it, or the limit."""
        offset = self._before(bisect_left(self._positions, position))
        while offset < limit:
            step = step_at(offset)
            if step.position >= position or step.position + step.rows > position:
                break
            offset = step.behind
        return offset

    def find_arrival(self, arrival: int, limit: int, step_at: StepAt) -> int:
        """Return the byte offset of the first frame that ends at or after an arrival time, or the limit."""
        offset = self._before(bisect_left(self._arrivals, arrival))
        while offset < limit:
            step = step_at(offset)
            # Of damaged frames only the arrivals around them are known: the one behind bounds theirs.
            if step.damaged and step.behind >= limit:
                break
            bound = step_at(step.behind) if step.damaged else step
            if bound.arrival >= arrival:
                break
            offset = step.behind
        return offset

    def find_before(self, offset: int, step_at: StepAt) -> int:
        """Return the byte offset of the frame that ends at an offset, which is behind the first frame's."""
        found = self._before(bisect_left(self._offsets, offset))
        while (behind := step_at(found).behind) < offset:
            found = behind
        return found

    def _before(self, entry: int) -> int:
        return self._offsets[entry - 1] if entry else self._first
