"""Fairness metrics: whether important classes answer sooner than others, and whether classes starve.

Priority inversion as in the dissertation (2.3.2): a class answers later, on average, than a less important
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

from mavstream_server.optimizer.admission.load import SlidingLoad


class ClassFairness(NamedTuple):
    """Fairness metrics of a class over the last seconds."""

    inversion_ratio: float | None
    """Mean response time divided by that of `next_class`; None without answers."""
    next_class: str | None
    """The next less important class that answered; the fastest one if several have equal priority."""
    starved: bool
    """Whether rows waited all the time while the class got no turn."""

    @property
    def inverted(self) -> bool:
        """Whether the class answers later than a less important class."""
        return self.inversion_ratio is not None and self.inversion_ratio > 1


def fairness(load: SlidingLoad, priorities: Mapping[str, int]) -> dict[str, ClassFairness]:
    """Compare the classes by name; those without answers are not compared with."""
    # A single sample would report a class as starved that was about to run.
    long_enough = load.seconds >= load.length / 2
    means = {name: load.latency(name).mean_ms for name in {**priorities, **load.classes}}
    below = _next_class(means, priorities)
    found = {}
    for name, mean in means.items():
        other = below.get(name)
        fastest = None if other is None else means[other]
        ratio = mean / fastest if mean is not None and fastest else None
        starved = long_enough and load.waited(name) and load.busy(name) == 0
        found[name] = ClassFairness(ratio, other if ratio is not None else None, starved)
    return found


def _next_class(means: Mapping[str, float | None], priorities: Mapping[str, int]) -> dict[str, str]:
    """Map each class that answered to the fastest class of the next lower priority that answered."""
    answered = [(priorities.get(name, 1), mean, name) for name, mean in means.items() if mean is not None]
    found: dict[str, str] = {}
    fastest: str | None = None
    for _, group in groupby(sorted(answered), key=lambda one: one[0]):
        members = [name for _, _, name in group]
        if fastest is not None:
            found |= dict.fromkeys(members, fastest)
        fastest = members[0]
    return found
