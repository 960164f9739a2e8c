"""Learners that choose between policies: the interface, and the learner of the AMoS paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random

from mavstream_protocol.specification import Metric, Specification
from mavstream_server.scheduling.mechanisms.learning.interval import Sample
from mavstream_server.scheduling.mechanisms.learning.scoring import Synopsis, policy_score, statistic_score


class Learner(ABC):
    """Learns how well policies perform, each known by its index, and chooses the next one."""

    def evidence(self, metric: Metric) -> Metric:
        """Return the metric that is measured to judge by a required metric: by default the same."""
        return metric

    @abstractmethod
    def learn(self, index: int, samples: Sequence[Sample]) -> None:
        """Take the samples, in order, of the intervals in which a policy was active."""

    @abstractmethod
    def scores(self, specification: Specification) -> list[float]:
        """Return the score of each policy for a specification; higher is better."""

    @abstractmethod
    def choose(self, specification: Specification, random: Random) -> int:
        """Return the index of the policy to activate next."""


class PrintedLearner(Learner):
    """Learner of the AMoS paper, 3.3 to 3.5: scores by equations 1 and 2, and a roulette wheel.

    Scores are close to 1 and the wheel is almost uniform, so all policies are used about equally often.
    """

    def __init__(self, policies: int, decay: float) -> None:
        self._decay = decay
        self._history: dict[Metric, Synopsis] = {}
        self._scores: list[dict[Metric, float]] = [{} for _ in range(policies)]

    def learn(self, index: int, samples: Sequence[Sample]) -> None:
        """Add the samples to the history, which covers all policies, and score the policy against it."""
        current: dict[Metric, Synopsis] = {}
        for sample in samples:
            for metric, value in sample.items():
                self._history.setdefault(metric, Synopsis()).add(value)
                current.setdefault(metric, Synopsis()).add(value)
        scores = self._scores[index]
        for metric, synopsis in current.items():
            scores[metric] = statistic_score(
                synopsis.mean, self._history[metric], scores.get(metric), self._decay
            )

    def scores(self, specification: Specification) -> list[float]:
        """Return equation 2 for each policy."""
        return [policy_score(specification, scores) for scores in self._scores]

    def choose(self, specification: Specification, random: Random) -> int:
        """Spin the wheel."""
        return spin(self.scores(specification), random)


def chances(scores: Sequence[float]) -> list[float]:
    """Return each score's share of the roulette wheel (3.5); equal shares if no score is above 0."""
    slices = [max(score, 0.0) for score in scores]
    total = sum(slices)
    return [part / total for part in slices] if total > 0 else [1 / len(slices)] * len(slices)


def spin(scores: Sequence[float], random: Random) -> int:
    """Spin the roulette wheel once and return the index of the chosen score."""
    return random.choices(range(len(scores)), chances(scores))[0]
