"""Multicore proportional round robin: a query's turn covers a part of its queue, by class priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Literal

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member
from mavstream_server.scheduling.bases.multicore_ring import MulticoreRing
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import OperatorView, Slice, View


class MulticoreProportionalRoundRobinOptions(PolicyOptions):
    """Options of `mprr`."""

    of: Literal["sum", "largest"] = "sum"
    """Part of the queue for a class of priority p: p / sum of all priorities, or p / largest priority."""


class _Stages(CoreUnit):
    """A unit whose turn has stages: a part of each leaf's queue, then everything above the leaves."""

    __slots__ = ("above", "class_name", "leaves", "stage")

    def __init__(self, members: Sequence[Member], priorities: Mapping[str, int]) -> None:
        super().__init__(members)
        self.class_name = self.leading_class(priorities)
        self.leaves = tuple(operator for operator in self.operators if operator.leaf)
        self.above = Slice(tuple(operator for operator in self.operators if not operator.leaf))
        self.stage = 0

    def goes_on(self) -> bool:
        """Return whether the current turn has work left; if not, end it."""
        if self.stage and not any(operator.ready for operator in self._left()):
            self.stage = 0
        return self.stage > 0

    def _left(self) -> Iterable[OperatorView]:
        return (*self.leaves[self.stage :], *self.above.operators)

    def go_on(self, part: float) -> Slice:
        """Return the slice of the next stage that has work."""
        while self.stage < len(self.leaves):
            leaf = self.leaves[self.stage]
            self.stage += 1
            if leaf.ready:
                return Slice((leaf,), max(1, ceil(part * leaf.queued)))
        self.stage = 0
        return self.above


@register
class MulticoreProportionalRoundRobin(MulticoreRing[MulticoreProportionalRoundRobinOptions, _Stages]):
    """Dissertation, 6.2.1, MPRR: round robin in which a query executes a percentage of its input queue.

    "Proportional to its class priority" is taken relative to the sum of the priorities; `of` offers the other
    reading. The part is computed from each leaf's queue when its turn comes; the operators above process all
    that waits. Fast for the highest class, while low classes keep long queues.
    """

    name = "mprr"
    optimises = "response time of the most important class on several cores"
    Options = MulticoreProportionalRoundRobinOptions

    def __init__(self, view: View, options: MulticoreProportionalRoundRobinOptions) -> None:
        super().__init__(view, options)
        self._sizes: Counter[str] = Counter()  # units by class
        self._parts: dict[str, float] = {}

    def make_unit(self, members: Sequence[Member]) -> _Stages:
        """Return a unit with stages, of the highest-priority class among its queries."""
        return _Stages(members, self.view.priorities)

    def formed(self, unit: _Stages) -> None:
        """Count the unit; recompute the parts for a new class."""
        self._sizes[unit.class_name] += 1
        if self._sizes[unit.class_name] == 1:
            self._share_out()

    def dissolved(self, unit: _Stages) -> None:
        """Uncount the unit; recompute the parts if its class is gone."""
        self._sizes[unit.class_name] -= 1
        if not self._sizes[unit.class_name]:
            del self._sizes[unit.class_name]
            self._share_out()

    def reprioritised(self) -> None:
        """Recompute the parts by the new priorities."""
        for unit in self._units.values():
            unit.class_name = unit.leading_class(self.view.priorities)
        self._sizes = Counter(unit.class_name for unit in self._units.values())
        self._share_out()

    def enter(self, unit: _Stages) -> None:
        """Append the unit to the ring, or put it first if its turn is not over."""
        if unit.goes_on():
            self._ring.appendleft(unit)
        else:
            self._ring.append(unit)

    def became_idle(self, unit: _Stages) -> None:
        """End the unit's turn."""
        unit.stage = 0

    def turn(self, unit: _Stages) -> Slice:
        """Return the next stage of the unit's turn."""
        return unit.go_on(self._parts[unit.class_name])

    def _share_out(self) -> None:
        priorities = {name: self.view.priorities.get(name, 1) for name in self._sizes}
        values = priorities.values() or [1]
        whole = sum(values) if self.options.of == "sum" else max(values)
        self._parts = {name: priority / whole for name, priority in priorities.items()}
