"""Adaptive broadcast disk: slots by class priority, adaptive slices, correction of inversions."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Self

from pydantic import Field, model_validator

from mavstream_server.scheduling.bases.class_level import ClassLevelPolicy
from mavstream_server.scheduling.mechanisms.broadcast_disk import BroadcastDisk, SlotHolder
from mavstream_server.scheduling.mechanisms.inversion.additive import StepwiseRecovery
from mavstream_server.scheduling.mechanisms.inversion.monitor import InversionMonitor
from mavstream_server.scheduling.mechanisms.quota_slice import QuotaSlice, TurnCosts
from mavstream_server.scheduling.policy import PolicyOptions, SourceService
from mavstream_server.scheduling.registry import InnerPolicy, register
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, Slice, View

_LATER = 1 << 32
"""Order within a slot of classes that were added since the round started: after the others."""
Microseconds = Annotated[int, Field(gt=0, le=10_000_000)]


class AdaptiveBroadcastDiskOptions(PolicyOptions):
    """Options of `abd`: the inner policy, the quota slice and its bounds, and the limit of corrections."""

    inner: InnerPolicy = Field(default_factory=lambda: InnerPolicy(policy="rr", options={"unit": "query"}))
    """The policy inside a class. Round robin, so that no operator of a class starves when its slice ends. The
    text uses a list in which an output follows right after the operator that feeds it; in the order in
    which operators become ready, tuples would wait for a whole round of the class at each operator."""
    quota_us: Microseconds = 50
    """Initial quota slice in microseconds; its value hardly matters."""
    least_us: Microseconds = 20
    """Lower bound of the quota slice in microseconds."""
    most_us: Microseconds = 100_000
    """Upper bound of the quota slice in microseconds, for overload, where it would grow without end; the text
    has none. Far above what a load below 1 needs: a bound that is reached starves the lowest class."""
    turns: Annotated[int, Field(gt=0, le=1000)] = 4
    """Turns of the class with the longest ones that a quota slice holds, where sources are scheduled."""
    limit: Annotated[float, Field(ge=1, le=1000)] = 4.0
    """Largest factor by which a correction may raise or lower a class against its priority."""
    calm: Annotated[int, Field(ge=0)] = 10
    """Rounds without an inversion before corrections are undone, by one per round."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.least_us <= self.quota_us <= self.most_us:
            raise ValueError(
                f"the quota slice of {self.quota_us} us must lie between least_us ({self.least_us}) "
                f"and most_us ({self.most_us})"
            )
        return self


class _Slot:
    """The slot that a core is in: its class, and the rest of the quota slice in nanoseconds."""

    __slots__ = ("class_name", "left", "served")

    def __init__(self, class_name: str, left: int) -> None:
        self.class_name = class_name
        self.left = left
        self.served: set[int] = set()
        """First operators of the slices that were run in it, by number; where sources are scheduled."""


@register
class AdaptiveBroadcastDisk(ClassLevelPolicy[AdaptiveBroadcastDiskOptions]):
    """Dissertation, 5.2, ABD: a class of priority p has p slots in a round, spread over it (Algorithm 2).

    A slot lasts a quota slice, which grows by the time that was missing to empty the queue of its last
    operator (Algorithm 3, with its flag reset every round); a class with nothing to do gives up its slot at
    once. At the end of a round a class that answered earlier than a more important neighbour loses a slot,
    or, if it has only one, the neighbour gains one. The text does not specify the averaging period: here it
    is the round. Nor does it ever undo a correction: here corrections are undone and stay within `limit`.
    Every class waits a bounded number of slices, so that none starves and important ones wait little.

    The text's sources run on a core of their own. Where sources are scheduled like operators, rows wait in
    the log, which is no operator's queue and under overload has no end. So there a slot holds `turns` turns
    of the class with the longest ones, and classes whose turns are less than half as long rest after each of
    their queries had a turn, until a class with long turns had a slot. The turns of a class that falls behind
    grow, up to the driver's longest train: slots grow with them, and other classes read more rows at a time.
    """

    name = "abd"
    optimises = "response time of important classes, without starving the others"
    sources = SourceService.OWN_CORE
    Options = AdaptiveBroadcastDiskOptions

    def __init__(self, view: View, options: AdaptiveBroadcastDiskOptions) -> None:
        super().__init__(view, options)
        self._disk: BroadcastDisk[str] = BroadcastDisk(self._new_round)
        self._holders: dict[str, SlotHolder[str]] = {}
        self._quota = QuotaSlice(options.quota_us * 1000, options.least_us * 1000, options.most_us * 1000)
        self.monitor = InversionMonitor(StepwiseRecovery(), options.limit, options.calm)
        self._slots: dict[int, _Slot] = {}  # by core
        self._slot_of: dict[int, _Slot] = {}  # of running slices, by their first operator's number
        self._resting: set[str] = set()  # classes that let one with long turns have a slot
        self._newcomers = count(_LATER)
        self._turn_costs: TurnCosts | None = None  # measured where sources are scheduled
        self._stale = False  # classes or priorities have changed: applied from the next round on

    @property
    def inner(self) -> InnerPolicy:
        """The policy that decides inside a class."""
        return self.options.inner

    def classes_changed(self) -> None:
        """Give a new class its slots at once; other changes are applied at the end of the round."""
        self._stale = True
        for name in [name for name in self._holders if name not in self._inner]:
            self._disk.sleep(self._holders.pop(name))
        for name in [name for name in self._inner if name not in self._holders]:
            self._holders[name] = SlotHolder(name, self.priority(name), next(self._newcomers))

    def admit(self, query: QueryView) -> None:
        """Admit the query to its class; if its sources are scheduled, fit the quota slice to turns."""
        super().admit(query)
        if self._turn_costs is None and any(o.kind is OperatorKind.SOURCE for o in query.operators):
            self._turn_costs = TurnCosts()

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Forward to the operator's class and wake its slots."""
        consult = super().arrived(operator, now)
        self._wake(operator.query.class_name)
        return consult

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the class whose slot the core is in, or of the next class with work."""
        slot = self._slots.get(core)
        if slot is None or slot.left <= 0:
            slot = self._next_slot(core)
        while slot is not None:
            slice_ = self.ask(slot.class_name, core, now)
            if slice_ is not None:
                self._slot_of[slice_.operators[0].number] = slot
                bound, left = slice_.duration, slot.left
                if self._turn_costs is not None:
                    # Rows of a turn that is cut after its source would wait for the class's next slot.
                    left = max(left, int(2 * self._turn_costs.longest))
                return Slice(
                    slice_.operators, slice_.tuples, left if bound is None or left < bound else bound
                )
            if (holder := self._holders.get(slot.class_name)) is not None:
                self._disk.sleep(holder)
            slot = self._next_slot(core)
        return None

    def _next_slot(self, core: int) -> _Slot | None:
        costs, before = self._turn_costs, self._slots.get(core)
        if costs is not None and before is not None and not costs.short(before.class_name):
            self._end_rest()
        holder = self._disk.take()
        if holder is None and self._resting:
            self._end_rest()
            holder = self._disk.take()
        if holder is None:
            self._slots.pop(core, None)
            return None
        self._disk.wake(holder)
        slot = self._slots[core] = _Slot(holder.item, self._quota.length)
        return slot

    def finished(self, slice_: Slice, report: Report) -> None:
        """Forward to the class and wake its slots if it has more to do."""
        super().finished(slice_, report)
        self._wake(slice_.operators[0].query.class_name)

    def charge(self, class_name: str, slice_: Slice, report: Report) -> None:
        """Deduct the time from the slot; if it was not enough, lengthen the quota slice."""
        if report.answers:
            self.monitor.record(class_name, report)
        slot = self._slot_of.pop(slice_.operators[0].number)
        slot.left -= report.elapsed
        if self._turn_costs is not None:
            self._watch(slot, slice_.operators[0], report.elapsed, self._turn_costs)
        if slot.left >= report.elapsed:
            return  # enough time for all of its tuples is enough for one more
        for operator in slice_.operators:
            if slot.left < operator.statistics.cost_per_tuple:
                self._close(slot, slice_)
                return

    def _watch(self, slot: _Slot, first: OperatorView, elapsed: int, costs: TurnCosts) -> None:
        """Measure a turn; let a class rest that has been through and reads few rows again.

        In more turns than it can fill, a class would spend its slots on fixed costs, while rows accumulate
        elsewhere. If turns are equally long, no class is far behind, or all are.
        """
        costs.record(slot.class_name, elapsed)
        if first.query.weight > 1:
            return  # it has several turns for each of the others
        if first.number not in slot.served:
            slot.served.add(first.number)
        elif costs.short(slot.class_name) and (holder := self._holders.get(slot.class_name)) is not None:
            slot.left = 0
            self._resting.add(slot.class_name)
            self._disk.sleep(holder)

    def _end_rest(self) -> None:
        resting, self._resting = self._resting, set()
        for class_name in resting:
            self._wake(class_name)

    def _wake(self, class_name: str) -> None:
        """Give a class its slots if it has something to do and does not rest."""
        holder = self._holders.get(class_name)
        if holder is not None and class_name in self._awake and class_name not in self._resting:
            self._disk.wake(holder)

    def _close(self, slot: _Slot, slice_: Slice) -> None:
        """End a slot that has too little time for a tuple, unless its operators have nothing to do."""
        left_over = sum(
            max(operator.queued, 1) * operator.statistics.cost_per_tuple
            for operator in slice_.operators
            if operator.ready
        )
        missing = int(left_over) - slot.left
        if missing > 0:
            slot.left = 0
            if self._turn_costs is None:
                self._quota.lengthen(missing)

    def _new_round(self) -> None:
        if self._turn_costs is None:
            self._quota.round_over()
        else:
            self._turn_costs.keep(self._inner)
            self._quota.fit(int(self.options.turns * self._turn_costs.longest))
        changed = self._stale
        if changed:
            self._stale = False
            self.monitor.assign({name: self.priority(name) for name in self._inner})
        else:
            changed = self.monitor.close_window().changed
        if changed:
            for order, name in enumerate(self.classes):
                self._disk.change(self._holders[name], int(self.monitor.frequency(name)), order)
