"""Adaptive broadcast disk: slots by class priority, adaptive slices, correction of inversions."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Self

from pydantic import Field, model_validator

from mavstream_server.scheduling.bases.class_level import ClassLevelPolicy
from mavstream_server.scheduling.mechanisms.broadcast_disk import BroadcastDisk, SlotHolder
from mavstream_server.scheduling.mechanisms.inversion.additive import StepwiseRecovery
from mavstream_server.scheduling.mechanisms.inversion.monitor import InversionMonitor
from mavstream_server.scheduling.policy import PolicyOptions, SourceService
from mavstream_server.scheduling.registry import InnerPolicy, register
from mavstream_server.scheduling.view import OperatorView, Report, Slice, View

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
    most_us: Microseconds = 2000
    """Upper bound of the quota slice in microseconds. The slice grows while work is left over, so this limits
    how long a class waits for another one that is overloaded."""
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


class QuotaSlice:
    """Length of a slot: grows by the time that was missing, and shrinks after a round without need.

    Dissertation, 5.2.1 and Algorithm 3. Nanoseconds.
    """

    __slots__ = ("_grown", "_last", "_least", "_most", "length")

    def __init__(self, length: int, least: int, most: int) -> None:
        self.length = length
        self._least = least
        self._most = most
        self._last = 0
        self._grown = False

    def lengthen(self, missing: int) -> None:
        """Grow by the time that was missing to finish the work of a slot."""
        self._grown = True
        grown = min(self._most, self.length + missing)
        if grown > self.length:
            self._last = grown - self.length
            self.length = grown

    def round_over(self) -> None:
        """Undo the last growth, unless the slice has grown in the round that ends."""
        if not self._grown and self.length > self._last:
            self.length = max(self._least, self.length - self._last)
        # As printed, this is never reset, and a slice that has grown once can never shrink again.
        self._grown = False


class _Turn:
    """The slot that a core is in: its class, and the rest of the quota slice in nanoseconds."""

    __slots__ = ("class_name", "left")

    def __init__(self, class_name: str, left: int) -> None:
        self.class_name = class_name
        self.left = left


@register
class AdaptiveBroadcastDisk(ClassLevelPolicy[AdaptiveBroadcastDiskOptions]):
    """Dissertation, 5.2, ABD: a class of priority p has p slots in a round, spread over it (Algorithm 2).

    A slot lasts a quota slice, which grows by the time that was missing to empty the queue of its last
    operator (Algorithm 3, with its flag reset every round); a class with nothing to do gives up its slot at
    once. At the end of a round a class that answered earlier than a more important neighbour loses a slot,
    or, if it has only one, the neighbour gains one. The text does not specify the averaging period: here it
    is the round. Nor does it ever undo a correction: here corrections are undone and stay within `limit`.
    Every class waits a bounded number of slices, so that none starves and important ones wait little.
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
        self._turns: dict[int, _Turn] = {}  # by core
        self._turn_of: dict[int, _Turn] = {}  # of running slices, by their first operator's number
        self._newcomers = count(_LATER)
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

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Forward to the operator's class and wake its slots."""
        consult = super().arrived(operator, now)
        self._disk.wake(self._holders[operator.query.class_name])
        return consult

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the class whose slot the core is in, or of the next class with work."""
        turn = self._turns.get(core)
        if turn is None or turn.left <= 0:
            turn = self._next_turn(core)
        while turn is not None:
            slice_ = self.ask(turn.class_name, core, now)
            if slice_ is not None:
                self._turn_of[slice_.operators[0].number] = turn
                bound = slice_.duration
                left = turn.left if bound is None or turn.left < bound else bound
                return Slice(slice_.operators, slice_.tuples, left)
            if (holder := self._holders.get(turn.class_name)) is not None:
                self._disk.sleep(holder)
            turn = self._next_turn(core)
        return None

    def _next_turn(self, core: int) -> _Turn | None:
        holder = self._disk.take()
        if holder is None:
            self._turns.pop(core, None)
            return None
        self._disk.wake(holder)
        turn = self._turns[core] = _Turn(holder.item, self._quota.length)
        return turn

    def finished(self, slice_: Slice, report: Report) -> None:
        """Forward to the class and wake its slots if it has more to do."""
        holder = self._holders.get(slice_.operators[0].query.class_name)
        super().finished(slice_, report)
        if holder is not None and holder.entry is None and holder.item in self._awake:
            self._disk.wake(holder)

    def charge(self, class_name: str, slice_: Slice, report: Report) -> None:
        """Deduct the time from the slot; if it was not enough, lengthen the quota slice."""
        if report.answers:
            self.monitor.record(class_name, report)
        turn = self._turn_of.pop(slice_.operators[0].number)
        turn.left -= report.elapsed
        if turn.left >= report.elapsed:
            return  # enough time for all of its tuples is enough for one more
        for operator in slice_.operators:
            if turn.left < operator.statistics.cost_per_tuple:
                self._close(turn, slice_)
                return

    def _close(self, turn: _Turn, slice_: Slice) -> None:
        """End a slot that has too little time for a tuple, unless its operators have nothing to do."""
        left_over = sum(
            max(operator.queued, 1) * operator.statistics.cost_per_tuple
            for operator in slice_.operators
            if operator.ready
        )
        missing = int(left_over) - turn.left
        if missing > 0:
            turn.left = 0
            self._quota.lengthen(missing)

    def _new_round(self) -> None:
        self._quota.round_over()
        changed = self._stale
        if changed:
            self._stale = False
            self.monitor.assign({name: self.priority(name) for name in self._inner})
        else:
            changed = self.monitor.close_window().changed
        if changed:
            for order, name in enumerate(self.classes):
                self._disk.change(self._holders[name], int(self.monitor.frequency(name)), order)
