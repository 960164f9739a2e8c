"""Lotteries on several cores: whoever is worth more holds more tickets."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.query_level import QueryLevelPolicy
from mavstream_server.scheduling.mechanisms.lottery import Lottery, TicketHolder
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import QueryView, View

_TICKETS = 1 << 24
"""Tickets for a worth of 1: enough that a ten-thousandth of a class is still a fair share."""


class LotteryUnit(CoreUnit):
    """A unit that holds tickets."""

    __slots__ = ("holder",)

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members)
        self.holder: TicketHolder[LotteryUnit] = TicketHolder(self)


class LotteryPolicy(QueryLevelPolicy[OptionsT, LotteryUnit]):
    """Draws a ticket at every scheduling point among those of the units in line."""

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._lottery: Lottery[LotteryUnit] = Lottery()
        self._stale = False  # some worth has moved

    def frequency(self, class_name: str) -> float:
        """Return the priority of the class."""
        return self.view.priorities.get(class_name, 1)

    def make_unit(self, members: Sequence[Member]) -> LotteryUnit:
        """Return a unit that holds tickets."""
        return LotteryUnit(members)

    def formed(self, unit: LotteryUnit) -> None:
        """Give the unit its tickets; the others' follow when a round is full."""
        self._assign_tickets(unit)
        self._stale = True

    def dissolved(self, unit: LotteryUnit) -> None:
        """The others' tickets follow when a round is full."""
        self._stale = True

    def enter(self, unit: LotteryUnit) -> None:
        """Put the unit's tickets into the lottery."""
        self._lottery.join(unit.holder)

    def leave(self, unit: LotteryUnit) -> None:
        """Take the unit's tickets out of the lottery."""
        self._lottery.leave(unit.holder)

    def pick(self, core: int) -> LotteryUnit | None:
        """Draw a ticket; its holder takes all of its own out."""
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
        """Measure the query anew; tickets follow when a round is full."""
        self.measure(query)
        self._stale = True

    def reprioritised(self) -> None:
        """Hand out tickets by the new priorities."""
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
