"""Our own inversion module: small relative steps that cascade downwards and are undone later."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from mavstream_server.scheduling.mechanisms.inversion.correction import (
    ClassState,
    Inversion,
    InversionModule,
    all_inversions,
    priority_groups,
)


class Cascade(InversionModule):
    """All classes from the highest violator downwards give up 5 %, and regain it when there is room.

    A violator here answers earlier than any class above it, not only than its neighbour. Steps are small
    and relative, so they keep the order of the classes below and work equally for priorities of 2 and of
    50. Classes that answer clearly later than all above them regain 1 % at a time, but never a larger
    part of their priority than a class above them.
    """

    name = "cascade"
    step = 0.05
    back = 0.01
    room = 0.1
    """Relative delay that counts as clearly later: more than what one step can make up for."""

    def find(self, classes: Sequence[ClassState]) -> list[Inversion]:
        """Return the classes that answer earlier than any class above."""
        return all_inversions(classes)

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Lower all classes from the highest violator downwards."""
        highest, keep = min(violator for _, violator in found), 1 - self.step
        return [one.frequency * (keep if index >= highest else 1) for index, one in enumerate(classes)]

    def recover(self, classes: Sequence[ClassState]) -> list[float]:
        """Raise the classes that have room."""
        now = [one.frequency for one in classes]
        part, slowest = 1.0, -inf  # of the classes above: their part of the priority, and slowest response
        for group in priority_groups(classes):
            members = [classes[index] for index in group]
            for index, one in zip(group, members, strict=True):
                room = one.response is None or one.response > slowest * (1 + self.room)
                now[index] = min(now[index] * (1 + self.back * room), part * one.priority)
            part = min(now[index] / classes[index].priority for index in group)
            slowest = max([slowest, *(one.response for one in members if one.response is not None)])
        return now

    def bounds(self, priority: int, limit: float) -> tuple[float, float]:
        """Return the bounds; frequencies need not be integers."""
        return priority / limit, priority * limit
