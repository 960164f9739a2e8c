"""A lottery: items hold tickets, and each ticket is as likely to be drawn as any other."""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class TicketHolder(Generic[ItemT]):
    """An item and its tickets; they are in the lottery or not."""

    __slots__ = ("index", "item", "level", "tickets")

    def __init__(self, item: ItemT, tickets: int = 1) -> None:
        self.item = item
        self.tickets = tickets
        """One at least; to be changed only while they are not in the lottery."""
        self.level: _Level[ItemT] | None = None
        self.index = 0


class _Level(Generic[ItemT]):
    """Holders that have from 2^(bits - 1) up to 2^bits tickets: of them, one drawn blindly mostly wins."""

    __slots__ = ("bits", "holders", "tickets")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.tickets = 0
        self.holders: list[TicketHolder[ItemT]] = []


class Lottery(Generic[ItemT]):
    """Tickets by level, so that a draw costs as much as there are levels, and a change costs O(1).

    Levels double, so there are as many as the largest number of tickets has digits, however many hold them;
    a tree of sums takes a step for every doubling of the holders in each draw and each change. Tickets are
    whole, so that sums stay exact.
    """

    def __init__(self) -> None:
        self._levels: dict[int, _Level[ItemT]] = {}  # those that have holders
        self._tickets = 0

    def join(self, holder: TicketHolder[ItemT]) -> None:
        """Put a holder's tickets into the lottery."""
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
        """Take a holder's tickets out of the lottery, if they are in."""
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
        """Return the holder of a ticket, or None if there is none."""
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
