"""Interface of inversion modules, and the functions that find inversions.

A module gets the classes with their priorities, current frequencies and response times, and returns the
frequencies from now on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby, pairwise
from math import ceil, floor, inf
from typing import ClassVar, NamedTuple


class ClassState(NamedTuple):
    """A class as seen by inversion modules; classes are passed by descending priority."""

    priority: int
    """Priority set by the user."""
    frequency: float
    """Current slots per round, before they are divided among its queries."""
    response: float | None
    """Mean response time, or None if there was no answer."""
    least: float = 1
    """Lower bound of the frequency."""


class Inversion(NamedTuple):
    """Two inverted classes, by their indices."""

    victim: int
    """The more important class, which answers later."""
    violator: int


def priority_groups(classes: Sequence[ClassState]) -> list[list[int]]:
    """Return the indices of the classes in groups of equal priority."""
    groups = groupby(range(len(classes)), key=lambda index: classes[index].priority)
    return [list(group) for _, group in groups]


def neighbour_inversions(classes: Sequence[ClassState]) -> list[Inversion]:
    """Return inversions between neighbouring classes, ignoring classes without an answer."""
    heard = [(index, one, one.response) for index, one in enumerate(classes) if one.response is not None]
    return [
        Inversion(above, below)
        for (above, one, slow), (below, other, fast) in pairwise(heard)
        if one.priority > other.priority and slow > fast
    ]


def all_inversions(classes: Sequence[ClassState]) -> list[Inversion]:
    """Return each class that answers earlier than some class above it, with the slowest of those."""
    found: list[Inversion] = []
    slowest, worst = -inf, -1
    for group in priority_groups(classes):
        heard = [(response, index) for index in group if (response := classes[index].response) is not None]
        found += [Inversion(worst, index) for response, index in heard if response < slowest]
        slowest, worst = max([(slowest, worst), *heard])
    return found


class InversionModule(ABC):
    """An algorithm that corrects inversions."""

    name: ClassVar[str]

    def find(self, classes: Sequence[ClassState]) -> list[Inversion]:
        """Return the inversions to correct."""
        return neighbour_inversions(classes)

    @abstractmethod
    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Return the new frequencies of the classes."""

    def recover(self, classes: Sequence[ClassState]) -> list[float]:
        """Return the frequencies after a calm period; the dissertation's modules leave them unchanged."""
        return [state.frequency for state in classes]

    def bounds(self, priority: int, limit: float) -> tuple[float, float]:
        """Return the lowest and the highest frequency within a factor of `limit` of the priority."""
        return max(1, ceil(priority / limit)), max(1, floor(priority * limit))


class NoCorrection(InversionModule):
    """Detects inversions without correcting them."""

    name = "none"

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Change nothing."""
        return [state.frequency for state in classes]
