"""A lottery: items hold tickets, and each ticket is drawn with equal probability."""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class TicketHolder(Generic[ItemT]):
    """An item and its tickets, which are in the lottery or not."""

    __slots__ = ("index", "item", "level", "tickets")

    def __init__(self, item: ItemT, tickets: int = 1) -> None:
        self.item = item
        self.tickets = tickets
        """At least one; may be changed only while the holder is not in the lottery."""
        self.level: _Level[ItemT] | None = None
        self.index = 0


class _Level(Generic[ItemT]):
    """Holders of 2^(bits - 1) to 2^bits - 1 tickets: rejection sampling accepts at least half of them."""

    __slots__ = ("bits", "holders", "tickets")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.tickets = 0
        self.holders: list[TicketHolder[ItemT]] = []


class Lottery(Generic[ItemT]):
    """Tickets by level: a draw costs O(levels), a change O(1).

    Levels are powers of two, so there are as many as the largest number of tickets has bits, however many
    holders there are; a tree of sums would cost O(log holders) for each draw and each change. Tickets are
    integers, so that sums stay exact.
    """

    def __init__(self) -> None:
        self._levels: dict[int, _Level[ItemT]] = {}  # non-empty levels by bits
        self._tickets = 0

    def join(self, holder: TicketHolder[ItemT]) -> None:
        """Add a holder's tickets to the lottery."""
        bits = holder.tickets.bit_length()
        level = self._levels.get(bits)
        if level is None:
            level = self._levels[bits] = _Level(bits)
        holder.level = level
        holder.index = len(level.holders)
        level.holders.append(holder)
        level.tickets += holder.tickets
        self._tickets += holder.tickets

    def leave(self, holder: TicketHolder[ItemT]) -> None:
        """Remove a holder's tickets from the lottery, if they are in it."""
        level = holder.level
        if level is None:
            return
        holder.level = None
        last = level.holders.pop()
        if last is not holder:
            level.holders[holder.index] = last
            last.index = holder.index
        level.tickets -= holder.tickets
        self._tickets -= holder.tickets
        if not level.holders:
            del self._levels[level.bits]

    def draw(self, random: Random) -> TicketHolder[ItemT] | None:
        """Return the holder of a random ticket, or None if there are no tickets."""
        if not self._tickets:
            return None
        ticket = random.random() * self._tickets
        for level in self._levels.values():
            ticket -= level.tickets
            if ticket < 0:
                break
        holders, most = level.holders, 1 << level.bits
        while True:
            drawn = random.random() * len(holders)
            holder = holders[int(drawn)]
            if drawn % 1 * most < holder.tickets:
                return holder
