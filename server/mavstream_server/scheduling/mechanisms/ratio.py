"""The best ratio of gain and cost: a piece of work with as much of what may follow as makes it better."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Work(NamedTuple):
    """Something to do: what is gained by it, and what it costs."""

    gain: float
    cost: float

    @property
    def ratio(self) -> float:
        """Gain by cost; nothing for what costs nothing."""
        return self.gain / self.cost if self.cost > 0 else 0.0


def with_best(first: Work, others: Iterable[Work]) -> Work:
    """Return a piece of work together with those of the others that raise its ratio.

    `others` come with the highest ratio first; each can be done or left once the first is done.
    """
    gain, cost = first
    for other in others:
        if other.ratio * cost <= gain:
            break
        gain += other.gain
        cost += other.cost
    return Work(gain, cost)
