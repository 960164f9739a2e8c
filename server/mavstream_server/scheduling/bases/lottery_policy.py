"""Base of lottery policies on several cores: tickets in proportion to priority."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.query_level import QueryLevelPolicy
from mavstream_server.scheduling.mechanisms.lottery import Lottery, TicketHolder
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import QueryView, View

_TICKETS = 1 << 24
"""Tickets for a priority of 1: enough to represent a ten-thousandth of a class accurately."""


class LotteryUnit(CoreUnit):
    """A unit that holds tickets."""

    __slots__ = ("holder",)

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members)
        self.holder: TicketHolder[LotteryUnit] = TicketHolder(self)


class LotteryPolicy(QueryLevelPolicy[OptionsT, LotteryUnit]):
    """Draws a ticket at every scheduling point among those of the ready units."""

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._lottery: Lottery[LotteryUnit] = Lottery()
        self._stale = False  # some priority has changed

    def frequency(self, class_name: str) -> float:
        """Return the priority of the class."""
        return self.view.priorities.get(class_name, 1)

    def make_unit(self, members: Sequence[Member]) -> LotteryUnit:
        """Return a unit that holds tickets."""
        return LotteryUnit(members)

    def formed(self, unit: LotteryUnit) -> None:
        """Give the unit its tickets; those of other units are updated when a round is complete."""
        self._assign_tickets(unit)
        self._stale = True

    def dissolved(self, unit: LotteryUnit) -> None:
        """Mark the tickets of other units for an update when a round is complete."""
        self._stale = True

    def enter(self, unit: LotteryUnit) -> None:
        """Put the unit's tickets into the lottery."""
        self._lottery.join(unit.holder)

    def leave(self, unit: LotteryUnit) -> None:
        """Take the unit's tickets out of the lottery."""
        self._lottery.leave(unit.holder)

    def pick(self, core: int) -> LotteryUnit | None:
        """Draw a ticket and take the winner's tickets out of the lottery."""
        if self._stale and self.round_full:
            self._assign_all_tickets()
        holder = self._lottery.draw(self.view.random)
        if holder is None:
            return None
        self._lottery.leave(holder)
        unit = holder.item
        unit.in_line = False
        return unit

    def refreshed(self, query: QueryView) -> None:
        """Recompute the query's work; tickets are updated when a round is complete."""
        self.measure(query)
        self._stale = True

    def reprioritised(self) -> None:
        """Reassign all tickets by the new priorities."""
        self._assign_all_tickets()

    def _assign_all_tickets(self) -> None:
        self._stale = False
        self._slices = 0
        for unit in self._units.values():
            self._lottery.leave(unit.holder)
            self._assign_tickets(unit)
            if unit.in_line:
                self._lottery.join(unit.holder)

    def _assign_tickets(self, unit: LotteryUnit) -> None:
        unit.holder.tickets = max(1, int(self.priority(unit) * _TICKETS))
