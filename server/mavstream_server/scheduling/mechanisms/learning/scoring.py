"""Scoring: how a policy has done, compared with all that was seen so far (AMoS paper, 3.3 and 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_protocol.specification import Metric, Specification


class Synopsis:
    """Mean and extremes of a metric: all that is kept of its history."""

    __slots__ = ("count", "high", "low", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.low = float("inf")
        self.high = float("-inf")

    def add(self, value: float) -> None:
        """Take in a sample."""
        self.count += 1
        self.mean += (value - self.mean) / self.count
        self.low = min(self.low, value)
        self.high = max(self.high, value)


def statistic_score(current: float, history: Synopsis, old: float | None, decay: float) -> float:
    """Equation 1: where a policy's mean lies in the range of the history, from -1 to 1, smoothed.

    `old` is the policy's score before; without one there is nothing to decay. A history in which all values
    are the same tells nothing: 0.
    """
    width = history.high - history.low
    new = (current - history.mean) / width if width > 0 else 0.0
    return new if old is None else new * (1 - decay) + old * decay


def policy_score(specification: Specification, scores: Mapping[Metric, float]) -> float:
    """Equation 2: the weighted sum of the scores, turned so that more is better, from 0 to 2.

    A metric without a score, as after the specification has changed, counts as average.
    """
    return 1 + sum(
        requirement.quantifier.sign * scores.get(requirement.metric, 0.0) * share
        for requirement, share in specification.shares
    )
