"""Broadcast-disk schedule: every item gets as many slots per round as its priority, evenly spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil, inf
from typing import Generic, TypeAlias, TypeVar

ItemT = TypeVar("ItemT")

BITS = 40
"""A round has 2^40 - 1 slots, most of them empty: the schedule is never materialised.

It equals the schedule for the smallest power of two that holds all priorities, because the slots in between
are empty; so priorities can change and items can be added during a round.
"""
MAX_PRIORITY = (1 << BITS) - 1
"""The highest priority that can be represented."""
_ROUNDING = 1e-9  # tolerance within which a priority counts as an integer
_SLACK = 64  # outdated entries that do not justify a clean-up
_LAST_ORDER = 1 << 62  # an order after all others: no item is left in this slot


def next_slot(priority: int, after: int) -> int:
    """Return the first slot after `after` that belongs to a priority; slot numbers continue over rounds.

    Bit b of a priority represents the slots whose number has BITS - 1 - b trailing zeros. The slots of the
    highest bit are the densest, and exactly one other slot lies between two of them: the multiple of twice
    their step.
    """
    width = priority.bit_length()
    step = 1 << (BITS - width)
    between = ((after >> (BITS - width + 1)) + 1) * 2 * step
    if after < between - step:
        return between - step
    zeros = (between & -between).bit_length() - 1
    if between & MAX_PRIORITY and priority >> (BITS - 1 - zeros) & 1:
        return between
    return between + step


def multiplier(shares: Iterable[float], longest: int) -> float:
    """Return the factor that makes the least share a priority of 1, but none above `longest` (6.1.2).

    Without that bound one very light query would make the round extremely long for all others.
    """
    least, limit = inf, 0.0
    for share in shares:
        least, limit = min(least, share), max(limit, share)
    return min(1 / least, longest / limit) if limit else 1.0


def whole_slots(priority: float) -> tuple[int, float]:
    """Return the slots of a priority and the probability of the first: 1.7 gives two, the first with 0.7.

    An integer priority always gets all of its slots; taken literally, the text, which uses the fractional
    part, would never give it the first one.
    """
    slots = ceil(priority - _ROUNDING)
    return slots, min(1.0, priority + 1 - slots)


_Entry: TypeAlias = "tuple[int, int, int, SlotHolder[ItemT]]"  # slot, order, sequence number, holder


class SlotHolder(Generic[ItemT]):
    """An item with its priority and its next slot in the schedule."""

    __slots__ = ("entry", "item", "last_slot", "order", "priority")

    def __init__(self, item: ItemT, priority: int, order: int) -> None:
        self.item = item
        self.priority = min(max(priority, 1), MAX_PRIORITY)
        self.order = order
        """Rank among the holders that share a slot; unique."""
        self.entry: _Entry[ItemT] | None = None
        """Its next slot and its order, while it is awake."""
        self.last_slot = -1
        """The slot that it had last."""

    @property
    def had_first_slot(self) -> bool:
        """Whether the slot that it had last was its first of the round."""
        return self.last_slot & MAX_PRIORITY == 1 << (BITS - self.priority.bit_length())


class BroadcastDisk(Generic[ItemT]):
    """The dissertation's Algorithm 2, without visits to sleeping items.

    Bit b of a priority goes into the slots whose number has mp - 1 - b trailing zeros, for the slots from 1
    to 2^mp - 1: priorities 5, 4, 3, 2, 1 give A B C D A B A C E A B C D A B.
    """

    def __init__(self, new_round: Callable[[], None] = lambda: None) -> None:
        self._new_round = new_round
        """Called before the first slot of a round is taken; the time to change priorities."""
        # A heap by slot and order. A `Ranking` would cost twice as much; as there, entries that are no longer
        # their holder's are skipped.
        self._heap: list[_Entry[ItemT]] = []
        self._outdated = 0
        self._numbers = count()
        self._slot = self._last = -1  # current slot and last slot of the round; -1 before the first round
        self._order = _LAST_ORDER

    def wake(self, holder: SlotHolder[ItemT]) -> None:
        """Give an item its slots from now on."""
        if holder.entry is None:
            self._schedule(holder)

    def sleep(self, holder: SlotHolder[ItemT]) -> None:
        """Skip an item's slots until it wakes."""
        if holder.entry is not None:
            holder.entry = None
            self._outdated += 1
            if 2 * self._outdated > len(self._heap) + _SLACK:
                self._heap = [entry for entry in self._heap if entry[3].entry is entry]
                heapify(self._heap)
                self._outdated = 0

    def change(self, holder: SlotHolder[ItemT], priority: int, order: int) -> None:
        """Change an item's priority and order; its slots of a round are exact if done between two rounds."""
        priority = min(max(priority, 1), MAX_PRIORITY)
        if priority != holder.priority or order != holder.order:
            holder.priority, holder.order = priority, order
            if holder.entry is not None:
                self.sleep(holder)
                self._schedule(holder)

    def take(self) -> SlotHolder[ItemT] | None:
        """Advance to the next slot of an awake item and return its holder, which then sleeps, or None."""
        heap = self._heap
        entry = heap[0] if heap else None
        if entry is None or entry[0] > self._last or entry[3].entry is not entry:
            entry = self._next_entry()
            if entry is None:
                return None
        heappop(self._heap)
        self._slot, self._order, _, holder = entry
        holder.last_slot, holder.entry = self._slot, None
        return holder

    def take_ahead(self, wanted: Callable[[ItemT], bool], limit: int) -> SlotHolder[ItemT] | None:
        """Like `take`, but a wanted item goes ahead of up to `limit` others that are due in this round."""
        passed: list[_Entry[ItemT]] = []
        entry = self._next_entry()
        while entry is not None and not wanted(entry[3].item):
            passed.append(heappop(self._heap))
            entry = self._head() if len(passed) <= limit else None
            if entry is not None and entry[0] > self._last:
                entry = None
        for other in passed:
            heappush(self._heap, other)
        if entry is None or not passed:
            return self.take()
        holder = entry[3]
        self.sleep(holder)
        holder.last_slot = entry[0]
        return holder

    def take_now(self, holder: SlotHolder[ItemT]) -> None:
        """Give the current slot to a sleeping item."""
        holder.last_slot = self._slot

    def missed(self, holder: SlotHolder[ItemT]) -> bool:
        """Return whether a sleeping item has missed a slot since the last one that it had."""
        if holder.last_slot == self._slot:
            return False
        due = next_slot(holder.priority, holder.last_slot)
        return due < self._slot or (due == self._slot and holder.order <= self._order)

    def _next_entry(self) -> _Entry[ItemT] | None:
        entry = self._head()
        if entry is not None and entry[0] > self._last:
            # Rounds in which no item has a slot are skipped.
            self._slot, self._order = entry[0] & ~MAX_PRIORITY, -1
            self._last = entry[0] | MAX_PRIORITY
            self._new_round()
            entry = self._head()
        return entry

    def _head(self) -> _Entry[ItemT] | None:
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[3].entry is entry:
                return entry
            heappop(heap)
            self._outdated -= 1
        return None

    def _schedule(self, holder: SlotHolder[ItemT]) -> None:
        # Items that come later in the current slot can still have it.
        after = self._slot - 1 if holder.order > self._order else self._slot
        slot = next_slot(holder.priority, after if after > holder.last_slot else holder.last_slot)
        holder.entry = entry = (slot, holder.order, next(self._numbers), holder)
        heappush(self._heap, entry)
