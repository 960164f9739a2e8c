"""What to do about priority inversion: when a class answers later than a less important one.

A module is given the classes with what they should get, what they get and how they answered, and says what
they shall get from now on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby, pairwise
from math import ceil, floor, inf
from typing import ClassVar, NamedTuple


class ClassState(NamedTuple):
    """A class as the modules see it; they are given the most important first."""

    priority: int
    """What the user wants."""
    frequency: float
    """What it has: slots, before they are divided among its queries."""
    response: float | None
    """Mean response time, or None if it gave no answer."""
    least: float = 1
    """The frequency below which it must not come."""


class Inversion(NamedTuple):
    """Two classes that have changed places, by their positions."""

    victim: int
    """The more important one, which answers later."""
    violator: int


def priority_groups(classes: Sequence[ClassState]) -> list[list[int]]:
    """Return the positions of the classes, in groups of equal priority."""
    groups = groupby(range(len(classes)), key=lambda index: classes[index].priority)
    return [list(group) for _, group in groups]


def neighbour_inversions(classes: Sequence[ClassState]) -> list[Inversion]:
    """Return which neighbours are inverted; a class that gave no answer is nobody's neighbour."""
    heard = [(index, one, one.response) for index, one in enumerate(classes) if one.response is not None]
    return [
        Inversion(above, below)
        for (above, one, slow), (below, other, fast) in pairwise(heard)
        if one.priority > other.priority and slow > fast
    ]


def all_inversions(classes: Sequence[ClassState]) -> list[Inversion]:
    """Return who answers earlier than some class above, each with the slowest of those."""
    found: list[Inversion] = []
    slowest, worst = -inf, -1
    for group in priority_groups(classes):
        heard = [(response, index) for index in group if (response := classes[index].response) is not None]
        found += [Inversion(worst, index) for response, index in heard if response < slowest]
        slowest, worst = max([(slowest, worst), *heard])
    return found


class InversionModule(ABC):
    """A way to correct inversions."""

    name: ClassVar[str]

    def find(self, classes: Sequence[ClassState]) -> list[Inversion]:
        """Return what is to be corrected."""
        return neighbour_inversions(classes)

    @abstractmethod
    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Return the frequencies of the classes from now on."""

    def recover(self, classes: Sequence[ClassState]) -> list[float]:
        """Return the frequencies after a calm time; the dissertation's modules leave them as they are."""
        return [state.frequency for state in classes]

    def bounds(self, priority: int, limit: float) -> tuple[float, float]:
        """Return the least and the highest frequency at most `limit` times off the priority."""
        return max(1, ceil(priority / limit)), max(1, floor(priority * limit))


class NoCorrection(InversionModule):
    """None: inversions are seen and left alone."""

    name = "none"

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Change nothing."""
        return [state.frequency for state in classes]
