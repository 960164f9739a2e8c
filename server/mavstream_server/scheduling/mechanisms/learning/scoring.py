"""Scores of policies relative to the history of all measurements (AMoS paper, 3.3 and 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_protocol.specification import Metric, Specification


class Synopsis:
    """Mean, minimum and maximum of a metric: all that is kept of its history."""

    __slots__ = ("count", "high", "low", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.low = float("inf")
        self.high = float("-inf")

    def add(self, value: float) -> None:
        """Add a sample."""
        self.count += 1
        self.mean += (value - self.mean) / self.count
        self.low = min(self.low, value)
        self.high = max(self.high, value)


def statistic_score(current: float, history: Synopsis, old: float | None, decay: float) -> float:
    """Return equation 1: the position of a policy's mean in the range of the history, from -1 to 1, smoothed.

    `old` is the policy's previous score, None if there is none. If all values of the history are equal, the
    score is 0.
    """
    width = history.high - history.low
    new = (current - history.mean) / width if width > 0 else 0.0
    return new if old is None else new * (1 - decay) + old * decay


def policy_score(specification: Specification, scores: Mapping[Metric, float]) -> float:
    """Return equation 2: the weighted sum of the scores, oriented so that higher is better, from 0 to 2.

    A metric without a score, as after a change of the specification, counts as average.
    """
    return 1 + sum(
        requirement.quantifier.sign * scores.get(requirement.metric, 0.0) * share
        for requirement, share in specification.shares
    )
