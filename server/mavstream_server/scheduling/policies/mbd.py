"""Multicore broadcast disk: slots of queries by class priority and cost, on several cores."""

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
    """Options of `mbd`: the modules that adapt the schedule, and their limits."""

    inversion: Literal["none", "dvp", "ivp", "dsp", "isp", "cascade"] = "cascade"
    """Module that corrects inversions, where a class answers later than a less important one (6.1.5)."""
    level: Annotated[int, Field(gt=0, lt=100)] | None = None
    """Percentile at which classes are compared, over the means of slices; None: the mean (6.3.3)."""
    selectivity: Literal["none", "s", "sa"] = "s"
    """`s`: statistics that have changed by 10 % apply from the next round on. `sa`: all statistics are
    updated after an inversion. `none`: the statistics at admission of a query apply (6.1.6)."""
    priority: Literal["none", "up"] = "up"
    """`up`: changed priorities apply from the next round on (6.1.7)."""
    affinity: bool = False
    """Whether a core prefers queries that it ran last: the variant AMBD (7.3)."""
    ahead: Annotated[int, Field(gt=0, le=1000)] = 10
    """How many other queries may be passed over for affinity."""
    limit: Annotated[float, Field(ge=1, le=1000)] = 10.0
    """Largest factor by which a correction may raise or lower a class against its priority."""
    calm: Annotated[int, Field(ge=0)] = 10
    """Rounds without an inversion before `cascade` undoes part of a correction."""
    longest: Annotated[int, Field(gt=0, le=1_000_000)] = 1000
    """Most slots of a query per round; beyond that, lighter queries get more than their share."""


class DiskUnit(CoreUnit):
    """A unit with slots in the schedule."""

    __slots__ = ("again", "chance", "class_name", "core", "holder")

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members)
        self.holder: SlotHolder[DiskUnit] = SlotHolder(self, 1, self.number)
        self.chance = 1.0
        """Probability of being run in the first slot of a round, for the fractional part of the priority."""
        self.again = False
        """Whether one of its slots came while it was running."""
        self.core = -1
        self.class_name = ""


@register
class MulticoreBroadcastDisk(QueryLevelPolicy[MulticoreBroadcastDiskOptions, DiskUnit]):
    """Dissertation, 6.1, MBD: Pr_i = Pr_class * cost(i) / cost(class) * multiplier, in slots as of ABD.

    The multiplier makes the least priority 1, but no query gets more than `longest` slots. A query has
    ceil(Pr_i) slots, the first of a round with the probability of the fractional part (always, if Pr_i is an
    integer). cost(i) sums over the query's sources. Slots of queries with nothing to do are skipped. A slot
    of a running query marks it to run again, ahead of all others, on the core that asks first: in practice
    the one that has just finished it. Queries that share operators are one unit, with the sum of their
    priorities and the most important of their classes.

    Any core takes any query. With `affinity` a core prefers its own within the round, but never idles for it.
    Good response times of important classes on several cores, while every query runs in every round.
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
        self._priorities: dict[str, int] = {}  # class priorities in use
        self._ahead = options.ahead if options.affinity else 0
        self._multiplier = 1.0
        self._stale = False  # priorities of queries have changed: update when a round is complete
        self._urgent = True  # priorities of classes have changed: update when the round ends

    # Classes and queries

    def frequency(self, class_name: str) -> float:
        """Return the corrected priority of the class."""
        return self.monitor.frequency(class_name)

    def admit(self, query: QueryView) -> None:
        """Give the query slots of its own, or merge it with the queries it shares operators with."""
        if query.class_name not in self._priorities:
            self._priorities[query.class_name] = self.view.priorities.get(query.class_name, 1)
            self.monitor.assign(self._priorities)
        super().admit(query)

    def retire(self, query: QueryView) -> None:
        """Remove the query and its slots."""
        super().retire(query)
        if query.class_name not in self.classes:
            del self._priorities[query.class_name]
            self.monitor.assign(self._priorities)

    def make_unit(self, members: Sequence[Member]) -> DiskUnit:
        """Return a unit with slots in the schedule."""
        return DiskUnit(members)

    def formed(self, unit: DiskUnit) -> None:
        """Give the unit its slots; those of other units are updated when a round is complete."""
        unit.class_name = unit.leading_class(self._priorities)
        self._assign_slots(unit)
        self._stale = True

    def dissolved(self, unit: DiskUnit) -> None:
        """Mark the slots of other units for an update when a round is complete."""
        self._stale = True

    def refreshed(self, query: QueryView) -> None:
        """Recompute the query's work, if the option `selectivity` is `s`."""
        if self.options.selectivity == "s":
            self.measure(query)
            self._stale = True

    def reprioritised(self) -> None:
        """Apply the new priorities when the round ends, if the option `priority` is `up`."""
        self._urgent = self._urgent or self.options.priority == "up"

    # Deciding

    def enter(self, unit: DiskUnit) -> None:
        """Wake the unit's slots, or run it at once if one of them came while it was running."""
        if unit.again:
            unit.again = False
            self._again.append(unit)
        else:
            self._disk.wake(unit.holder)

    def leave(self, unit: DiskUnit) -> None:
        """Remove the unit from the schedule."""
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
        """Record the response times of the unit's class, and whether the unit missed a slot."""
        self._slices += 1
        if report.answers:
            self.monitor.record(unit.class_name, report)
        unit.again = self._disk.missed(unit.holder)

    # Between rounds

    def _new_round(self) -> None:
        # A round is short when few units have work. A window then spans several rounds, so that it holds as
        # many slices as there are units, which amortises the reassignment of all slots.
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
