"""Units ranked by their laxity: how long they may still wait before they miss a latency target."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.mechanisms.ranking import Ranking
from mavstream_server.scheduling.view import OperatorView, QueryView, Slice


class LaxityUnit:
    """Operators that run together: those of a query, or one."""

    __slots__ = (
        "above",
        "bottom",
        "latest",
        "level",
        "number",
        "numbers",
        "oldest",
        "query",
        "ranking",
        "rest",
        "running",
        "slack",
        "turn",
        "whole",
    )

    def __init__(self, query: QueryView, operators: Sequence[OperatorView], level: LaxityLevel) -> None:
        self.query = query
        self.level = level
        self.number = operators[0].number
        self.numbers = frozenset(operator.number for operator in operators)
        fed = {reader.number for operator in operators for reader in operator.downstream}
        self.bottom = tuple(operator for operator in operators if operator.number not in fed)
        """Operators that are not fed by others of the unit."""
        self.above = tuple(operator for operator in operators if operator.number in fed)
        self.slack = 0
        """How long a tuple may wait before the unit must start: target minus cost (ns)."""
        self.oldest = 0
        """Arrival of its oldest tuple (ns)."""
        self.latest = 0
        """Its latest start: that arrival plus the slack (ns)."""
        self.whole = Slice(tuple(operators))
        self.rest = Slice(self.above)
        """Finishes what a bounded turn has left above the bottom."""
        self.turn = self.whole
        """What it runs next."""
        self.ranking: Ranking[LaxityUnit] | None = None
        """The ranking in which it waits."""
        self.running: tuple[OperatorView, ...] | None = None
        """The operators of its running slice."""

    def rank(self, oldest: int) -> None:
        """Let it wait for its turn, given the arrival of its oldest tuple."""
        level = self.level
        if self.ranking is level.late:
            level.late.remove(self)
        self.oldest = oldest
        self.latest = latest = oldest + self.slack
        self.ranking = level.in_time
        level.in_time.put(self, (latest, self.number))

    def can_wait(self, now: int) -> bool:
        """Return whether less than a quarter of its slack is used up."""
        return 4 * (self.latest - now) > 3 * self.slack

    def leave(self, now: int) -> None:
        """Take it out of its ranking, in which it is first: its turn begins."""
        level, ranking = self.level, self.ranking
        assert ranking is not None
        if ranking is level.late:
            level.last_late_turn = now
        ranking.pop()
        self.ranking = None

    def put_back(self, now: int) -> None:
        """Let it wait for its turn again after a slice, if it has more to do."""
        oldest, self.turn = None, self.whole
        for operator in self.above:
            if operator.ready:
                self.turn = self.rest
                oldest = _older(oldest, operator.oldest, now)
        for operator in self.bottom:
            if operator.ready:
                oldest = _older(oldest, operator.oldest, now)
        if oldest is not None:
            self.rank(oldest)


class LaxityLevel:
    """The waiting units of all classes of one priority."""

    __slots__ = ("in_time", "last_late_turn", "late", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.in_time: Ranking[LaxityUnit] = Ranking()
        """Units that can still keep their targets, by latest start."""
        self.late: Ranking[LaxityUnit] = Ranking()
        """Units that cannot, by oldest tuple."""
        self.last_late_turn = 0
        """When one of these last began a turn (ns)."""

    def first_in_time(self, now: int) -> LaxityUnit | None:
        """Return the unit that must start first, after those that should have started were moved."""
        while (unit := self.in_time.first()) is not None and unit.latest < now:
            self.in_time.pop()
            unit.ranking = self.late
            self.late.put(unit, (unit.oldest, unit.number))
        return unit


def _older(oldest: int | None, arrival: int | None, now: int) -> int:
    """Return the earlier of two arrivals; that of a watermark without tuples, None, is now."""
    if arrival is None:
        arrival = now
    return arrival if oldest is None or arrival < oldest else oldest
