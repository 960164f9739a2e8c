"""An inversion module of our own: small steps in proportion, which cascade downwards and are taken back."""

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
    """Everybody from the highest violator downwards gives up 5 %, and gets it back when there is room.

    A violator here answers earlier than any class above it, not only than its neighbour. A step is small
    and in proportion, so that it keeps the order of the classes below and works alike for priorities of 2
    and of 50. What was given up comes back by 1 % at a time, to classes that answer clearly later than all
    above them, and never to one more than to another above it.
    """

    name = "cascade"
    step = 0.05
    back = 0.01
    room = 0.1
    """How much later than the classes above is clearly later: more than a step makes up for."""

    def find(self, classes: Sequence[ClassState]) -> list[Inversion]:
        """Return who answers earlier than any class above."""
        return all_inversions(classes)

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Let all from the highest violator downwards give way."""
        highest, keep = min(violator for _, violator in found), 1 - self.step
        return [one.frequency * (keep if index >= highest else 1) for index, one in enumerate(classes)]

    def recover(self, classes: Sequence[ClassState]) -> list[float]:
        """Give back where there is room."""
        now = [one.frequency for one in classes]
        part, slowest = 1.0, -inf  # what the classes above have of their priorities, and how they answered
        for group in priority_groups(classes):
            members = [classes[index] for index in group]
            for index, one in zip(group, members, strict=True):
                room = one.response is None or one.response > slowest * (1 + self.room)
                now[index] = min(now[index] * (1 + self.back * room), part * one.priority)
            part = min(now[index] / classes[index].priority for index in group)
            slowest = max([slowest, *(one.response for one in members if one.response is not None)])
        return now

    def bounds(self, priority: int, limit: float) -> tuple[float, float]:
        """Return the bounds; fractions of slots are as good as whole ones."""
        return priority / limit, priority * limit
