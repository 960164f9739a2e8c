"""The broadcast-disk schedule: everybody gets as many slots as its priority says, spread over the round."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil, inf
from typing import Generic, TypeAlias, TypeVar

ItemT = TypeVar("ItemT")

BITS = 40
"""A round has 2^40 - 1 slots, most of them nobody's: the schedule is never written out.

That is the same schedule as with the least power of two that holds the priorities, for the slots between
are empty; so priorities can change and items come while a round is under way.
"""
MOST = (1 << BITS) - 1
"""The highest priority that has its slots."""
_ROUNDING = 1e-9  # a priority that is whole but for the arithmetic is whole
_SLACK = 64  # outdated entries that are not worth a clean-up
_EVERYBODY = 1 << 62  # an order behind all others: at this slot nobody is left


def next_slot(priority: int, after: int) -> int:
    """Return the first slot behind `after` in which a priority has a turn; slots count on over rounds.

    Bit b of a priority stands for the slots whose number has BITS - 1 - b trailing zeros. The highest bit's
    slots are the densest, and just one other slot lies between two of them: the multiple of twice their step.
    """
    width = priority.bit_length()
    step = 1 << (BITS - width)
    between = ((after >> (BITS - width + 1)) + 1) * 2 * step
    if after < between - step:
        return between - step
    zeros = (between & -between).bit_length() - 1
    if between & MOST and priority >> (BITS - 1 - zeros) & 1:
        return between
    return between + step


def multiplier(shares: Iterable[float], longest: int) -> float:
    """Return what makes the least share a priority of 1, but none more than `longest` (dissertation, 6.1.2).

    Without that bound one very light query would make the round endless for all others.
    """
    least, most = inf, 0.0
    for share in shares:
        least, most = min(least, share), max(most, share)
    return min(1 / least, longest / most) if most else 1.0


def whole_slots(priority: float) -> tuple[int, float]:
    """Return the slots of a priority and the chance of its first one: 1.7 gives two, the first with 0.7.

    A whole priority has all of its slots for certain; the text, which speaks of the fraction, would give the
    first one none.
    """
    slots = ceil(priority - _ROUNDING)
    return slots, min(1.0, priority + 1 - slots)


_Entry: TypeAlias = "tuple[int, int, int, Place[ItemT]]"  # slot, order, a running number


class Place(Generic[ItemT]):
    """Where an item stands in the schedule."""

    __slots__ = ("entry", "item", "order", "priority", "taken")

    def __init__(self, item: ItemT, priority: int, order: int) -> None:
        self.item = item
        self.priority = min(max(priority, 1), MOST)
        self.order = order
        """Who goes first of those that share a slot; different for everybody."""
        self.entry: _Entry[ItemT] | None = None
        """Its next slot and its order, while it is awake."""
        self.taken = -1
        """The last slot that it had."""

    @property
    def had_first(self) -> bool:
        """Whether the slot that it had last was its first in the round."""
        return self.taken & MOST == 1 << (BITS - self.priority.bit_length())


class BroadcastDisk(Generic[ItemT]):
    """The dissertation's Algorithm 2, gone around without a visit to those who sleep.

    Bit b of a priority goes into the slots whose number has mp - 1 - b trailing zeros, for the slots from 1
    to 2^mp - 1: priorities 5, 4, 3, 2, 1 give A B C D A B A C E A B C D A B.
    """

    def __init__(self, new_round: Callable[[], None] = lambda: None) -> None:
        self._new_round = new_round
        """Called before the first slot of a round is taken: the time to change priorities."""
        # A heap by slot and order. It is not a `Ranking`, which costs twice as much; like there, entries
        # that are not their place's any more are passed over.
        self._heap: list[_Entry[ItemT]] = []
        self._outdated = 0
        self._numbers = count()
        self._slot = self._last = -1  # where the round stands, and ends; before the first there is nothing
        self._order = _EVERYBODY

    def wake(self, place: Place[ItemT]) -> None:
        """Let an item have its slots from here on."""
        if place.entry is None:
            self._stand(place)

    def sleep(self, place: Place[ItemT]) -> None:
        """Pass over an item's slots."""
        if place.entry is not None:
            place.entry = None
            self._outdated += 1
            if 2 * self._outdated > len(self._heap) + _SLACK:
                self._heap = [entry for entry in self._heap if entry[3].entry is entry]
                heapify(self._heap)
                self._outdated = 0

    def change(self, place: Place[ItemT], priority: int, order: int) -> None:
        """Give an item other slots from here on; to keep what was promised, do so between two rounds."""
        priority = min(max(priority, 1), MOST)
        if priority != place.priority or order != place.order:
            place.priority, place.order = priority, order
            if place.entry is not None:
                self.sleep(place)
                self._stand(place)

    def take(self) -> Place[ItemT] | None:
        """Go to the next slot of anybody awake and return who it is, who sleeps from then on, or None."""
        heap = self._heap
        entry = heap[0] if heap else None
        if entry is None or entry[0] > self._last or entry[3].entry is not entry:
            entry = self._first()
            if entry is None:
                return None
        heappop(self._heap)
        self._slot, self._order, _, place = entry
        place.taken, place.entry = self._slot, None
        return place

    def take_ahead(self, wanted: Callable[[ItemT], bool], most: int) -> Place[ItemT] | None:
        """Like `take`, but whoever is wanted goes before up to `most` others that are due in this round."""
        passed: list[_Entry[ItemT]] = []
        entry = self._first()
        while entry is not None and not wanted(entry[3].item):
            passed.append(heappop(self._heap))
            entry = self._standing() if len(passed) <= most else None
            if entry is not None and entry[0] > self._last:
                entry = None
        for other in passed:
            heappush(self._heap, other)
        if entry is None or not passed:
            return self.take()
        place = entry[3]
        self.sleep(place)
        place.taken = entry[0]
        return place

    def take_now(self, place: Place[ItemT]) -> None:
        """Give an item that sleeps the slot of now."""
        place.taken = self._slot

    def missed(self, place: Place[ItemT]) -> bool:
        """Return whether an item that sleeps would have had another slot since the last one that it had."""
        if place.taken == self._slot:
            return False
        due = next_slot(place.priority, place.taken)
        return due < self._slot or (due == self._slot and place.order <= self._order)

    def _first(self) -> _Entry[ItemT] | None:
        entry = self._standing()
        if entry is not None and entry[0] > self._last:
            # Rounds that nobody has a slot in are left out.
            self._slot, self._order = entry[0] & ~MOST, -1
            self._last = entry[0] | MOST
            self._new_round()
            entry = self._standing()
        return entry

    def _standing(self) -> _Entry[ItemT] | None:
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[3].entry is entry:
                return entry
            heappop(heap)
            self._outdated -= 1
        return None

    def _stand(self, place: Place[ItemT]) -> None:
        # Those who come later in the slot of now still have it before them.
        after = self._slot - 1 if place.order > self._order else self._slot
        slot = next_slot(place.priority, after if after > place.taken else place.taken)
        place.entry = entry = (slot, place.order, next(self._numbers), place)
        heappush(self._heap, entry)
