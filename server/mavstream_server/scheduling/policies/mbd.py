"""Multicore broadcast disk: queries in slots by class priority and cost, on several cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.query_level import QueryLevelPolicy
from mavstream_server.scheduling.mechanisms.broadcast_disk import (
    BroadcastDisk,
    SlotHolder,
    multiplier,
    whole_slots,
)
from mavstream_server.scheduling.mechanisms.inversion.monitor import MODULES, InversionMonitor
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView, Report, View


class MulticoreBroadcastDiskOptions(PolicyOptions):
    """Which modules watch over the schedule, and how far they may go."""

    inversion: Literal["none", "dvp", "ivp", "dsp", "isp", "cascade"] = "cascade"
    """What is done when a class answers later than a less important one (6.1.5)."""
    level: Annotated[int, Field(gt=0, lt=100)] | None = None
    """The percentile that this is judged by, from the means of slices; without, the mean (6.3.3)."""
    selectivity: Literal["none", "s", "sa"] = "s"
    """`s`: figures that have moved by a tenth count from the next round on. `sa`: all figures are taken
    over when there is an inversion. `none`: those hold that a query came with (6.1.6)."""
    priority: Literal["none", "up"] = "up"
    """`up`: priorities that are changed count from the next round on (6.1.7)."""
    affinity: bool = False
    """Whether a core prefers queries that it ran last: the variant AMBD (7.3)."""
    ahead: Annotated[int, Field(gt=0, le=1000)] = 10
    """How many others may be passed over for that."""
    limit: Annotated[float, Field(ge=1, le=1000)] = 10.0
    """How many times above or below its priority a correction may bring a class."""
    calm: Annotated[int, Field(ge=0)] = 10
    """Rounds without an inversion before `cascade` takes back some of a correction."""
    longest: Annotated[int, Field(gt=0, le=1_000_000)] = 1000
    """The most slots for a query; beyond that, lighter ones get more than their share."""


class DiskUnit(CoreUnit):
    """A unit with a place in the schedule."""

    __slots__ = ("again", "chance", "class_name", "core", "holder")

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members)
        self.holder: SlotHolder[DiskUnit] = SlotHolder(self, 1, self.number)
        self.chance = 1.0
        """Of being run in the first slot of a round; for the fraction of a slot."""
        self.again = False
        """Whether a slot came while it was running."""
        self.core = -1
        self.class_name = ""


@register
class MulticoreBroadcastDisk(QueryLevelPolicy[MulticoreBroadcastDiskOptions, DiskUnit]):
    """Dissertation, 6.1, MBD: Pr_i = Pr_class * cost(i) / cost(class) * multiplier, in slots as of ABD.

    The multiplier makes the least priority 1, but no query gets more than `longest` slots. A query has
    ceil(Pr_i) slots, the first of a round with the chance of the fraction (all of it, if Pr_i is whole).
    cost(i) sums over the query's sources. Slots of queries with nothing to do are passed over. A slot of a
    query that is running marks it to be run again, before anybody else, by the core that asks first: in
    practice the one that has just ended it. Queries that share operators are one, with the sum of their
    priorities, and count as of the most important of their classes.

    Any core takes any query. With `affinity` a core prefers its own within the round, but never idles for it.
    Good response times of important classes on several cores, while no query is left out of a round.
    """

    name = "mbd"
    optimises = "weighted response time of classes on several cores"
    Options = MulticoreBroadcastDiskOptions

    def __init__(self, view: View, options: MulticoreBroadcastDiskOptions) -> None:
        super().__init__(view, options)
        self._disk: BroadcastDisk[DiskUnit] = BroadcastDisk(self._new_round)
        self._again: deque[DiskUnit] = deque()
        self.monitor = InversionMonitor(
            MODULES[options.inversion](), options.limit, options.calm, options.level
        )
        self._priorities: dict[str, int] = {}  # of the classes, as they count now
        self._ahead = options.ahead if options.affinity else 0
        self._multiplier = 1.0
        self._stale = False  # worths have moved: look when a round is full
        self._urgent = True  # priorities have changed: look when a round is over

    # Classes and queries

    def frequency(self, class_name: str) -> float:
        """Return the frequency that stands for the priority of the class."""
        return self.monitor.frequency(class_name)

    def admit(self, query: QueryView) -> None:
        """Give the query slots of its own, or a part in those of the queries that it shares with."""
        if query.class_name not in self._priorities:
            self._priorities[query.class_name] = self.view.priorities.get(query.class_name, 1)
            self.monitor.assign(self._priorities)
        super().admit(query)

    def retire(self, query: QueryView) -> None:
        """Leave the query's slots to the others."""
        super().retire(query)
        if query.class_name not in self.classes:
            del self._priorities[query.class_name]
            self.monitor.assign(self._priorities)

    def make_unit(self, members: Sequence[Member]) -> DiskUnit:
        """Return a unit with a place in the schedule."""
        return DiskUnit(members)

    def formed(self, unit: DiskUnit) -> None:
        """Give the unit its slots; the others' follow when a round is full."""
        unit.class_name = unit.leading_class(self._priorities)
        self._assign_slots(unit)
        self._stale = True

    def dissolved(self, unit: DiskUnit) -> None:
        """The others' slots follow when a round is full."""
        self._stale = True

    def refreshed(self, query: QueryView) -> None:
        """Measure the query anew, if that is what `selectivity` says."""
        if self.options.selectivity == "s":
            self.measure(query)
            self._stale = True

    def reprioritised(self) -> None:
        """Take the new priorities when the round is over, if that is what `priority` says."""
        self._urgent = self._urgent or self.options.priority == "up"

    # Deciding

    def enter(self, unit: DiskUnit) -> None:
        """Let the unit have its slots, or run it at once if one came while it was running."""
        if unit.again:
            unit.again = False
            self._again.append(unit)
        else:
            self._disk.wake(unit.holder)

    def leave(self, unit: DiskUnit) -> None:
        """Take the unit out of the schedule."""
        self._disk.sleep(unit.holder)

    def pick(self, core: int) -> DiskUnit | None:
        """Return the unit whose slot comes next."""
        while self._again:
            unit = self._again.popleft()
            if not unit.gone:
                self._disk.take_now(unit.holder)
                unit.in_line = False
                return unit
        disk, ahead = self._disk, self._ahead
        while (holder := self._take_ahead(core) if ahead else disk.take()) is not None:
            unit = holder.item
            if unit.chance == 1 or not holder.had_first_slot or self.view.random.random() < unit.chance:
                unit.in_line = False
                return unit
            disk.wake(holder)
        return None

    def _take_ahead(self, core: int) -> SlotHolder[DiskUnit] | None:
        return self._disk.take_ahead(lambda unit: unit.core == core, self._ahead)

    def began(self, unit: DiskUnit, core: int) -> None:
        """Remember the core."""
        unit.core = core

    def ended(self, unit: DiskUnit, report: Report) -> None:
        """Record how the unit's class answered, and whether it missed a slot."""
        self._slices += 1
        if report.answers:
            self.monitor.record(unit.class_name, report)
        unit.again = self._disk.missed(unit.holder)

    # Between two rounds

    def _new_round(self) -> None:
        # A round is over quickly when few have something to do. A window then spans several, so that it
        # holds as many slices as there are units, and laying all of them out anew is paid for.
        full = self.round_full
        if full:
            self._slices = 0
            self._judge()
        if self._urgent or (self._stale and full):
            self._reassign_slots()

    def _judge(self) -> None:
        outcome = self.monitor.close_window()
        self._stale = self._stale or outcome.changed
        if outcome.inverted and self.options.selectivity == "sa":
            self._stale = True
            for unit in self._units.values():
                for member in unit.members:
                    self.measure(member.query)

    def _reassign_slots(self) -> None:
        if self._urgent and self.options.priority == "up":
            self._priorities = {name: self.view.priorities.get(name, 1) for name in self.classes}
            self.monitor.assign(self._priorities)
            for unit in self._units.values():
                unit.class_name = unit.leading_class(self._priorities)
        self._urgent = self._stale = False
        shares = [self.share(member) for unit in self._units.values() for member in unit.members]
        self._multiplier = multiplier(shares, self.options.longest)
        for unit in self._units.values():
            self._assign_slots(unit)

    def _assign_slots(self, unit: DiskUnit) -> None:
        priority = sum(max(1.0, self.share(member) * self._multiplier) for member in unit.members)
        slots, unit.chance = whole_slots(priority)
        self._disk.change(unit.holder, slots, unit.number)
