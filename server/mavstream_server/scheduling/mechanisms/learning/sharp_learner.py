"""A sharper learner: a policy answers for what it changed, not for what it was left with."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p, sqrt
from random import Random

from mavstream_protocol.specification import Metric, Specification
from mavstream_server.scheduling.mechanisms.learning.interval import Sample
from mavstream_server.scheduling.mechanisms.learning.learner import Learner

_FORGETTING = 0.99
"""What a sample weighs one interval later: half after 69, so that the learner follows a changing load."""
_PRIOR_EFFECT = 1.0
"""Variance of what a policy may do to the logarithm of a metric; uncertainty never grows beyond it."""
_PRIOR_CARRY = (0.5, 0.25)
"""Mean and variance of the part of a metric that one interval leaves to the next."""
_FIRST_NOISE = 0.25


class SharpLearner(Learner):
    """A bandit by Thompson sampling over a linear model of each metric, in logarithms.

    y(t) = carry * y(t-1) + effect(policy) + noise, estimated by least squares that forget. What an interval
    has inherited, as a backlog, is explained by the carry and not credited to the policy. Logarithms make
    effects relative, so that weights weigh a tenth less delay against a tenth more output, whatever the
    units, and a metric that no policy changes has no say. Each choice draws the effects within their
    uncertainty and takes the best: policies that are surely worse are hardly tried, unless that is long ago.
    """

    def __init__(self, policies: int) -> None:
        self._policies = policies
        self._models: dict[Metric, _Model] = {}

    def evidence(self, metric: Metric) -> Metric:
        """Judge delay by what waits: those who hold tuples back answer for it, not those who let them out."""
        return Metric.PENDING_ANSWERS if metric is Metric.DELAY else metric

    def learn(self, index: int, samples: Sequence[Sample]) -> None:
        """Fit each metric's model to the samples."""
        for sample in samples:
            for metric, value in sample.items():
                if metric not in self._models:
                    self._models[metric] = _Model(self._policies)
                self._models[metric].fit(index, log1p(max(value, 0.0)))

    def scores(self, specification: Specification) -> list[float]:
        """Return the weighted sum of each policy's estimated effects."""
        return self._weigh(specification, None)

    def choose(self, specification: Specification, random: Random) -> int:
        """Return the policy whose drawn effects are best, of equals the first."""
        drawn = self._weigh(specification, random)
        return drawn.index(max(drawn))

    def _weigh(self, specification: Specification, random: Random | None) -> list[float]:
        sums = [0.0] * self._policies
        for requirement, share in specification.shares:
            model = self._models.get(self.evidence(requirement.metric))
            if model is not None:
                factor = requirement.quantifier.sign * share
                for index in range(self._policies):
                    sums[index] += factor * model.effect(index, random)
        return sums


class _Model:
    """Recursive least squares over (one-hot policy, value before), for one metric."""

    def __init__(self, policies: int) -> None:
        self._weights = [0.0] * policies + [_PRIOR_CARRY[0]]
        self._priors = [_PRIOR_EFFECT] * policies + [_PRIOR_CARRY[1]]
        self._covariance = [
            [prior if row == column else 0.0 for column in range(policies + 1)]
            for row, prior in enumerate(self._priors)
        ]
        self._noise = _FIRST_NOISE
        self._origin: float | None = None  # values count from the first one: priors are around 0
        self._before = 0.0

    def effect(self, index: int, random: Random | None) -> float:
        """Return a policy's estimated effect, or one drawn around it."""
        effect = self._weights[index]
        if random is None:
            return effect
        return random.gauss(effect, sqrt(self._noise * self._covariance[index][index]))

    def fit(self, index: int, value: float) -> None:
        """Take in the value of an interval in which a policy decided."""
        if self._origin is None:
            self._origin = value
            return
        value -= self._origin
        features = [0.0] * len(self._weights)
        features[index], features[-1] = 1.0, self._before
        self._before = value
        spread = [_dot(row, features) for row in self._covariance]
        weight = _FORGETTING + _dot(features, spread)
        error = value - _dot(self._weights, features)
        self._noise += (1 - _FORGETTING) * (error * error - self._noise)
        self._weights = [old + error * part / weight for old, part in zip(self._weights, spread, strict=True)]
        self._shrink(spread, weight)

    def _shrink(self, spread: list[float], weight: float) -> None:
        """Take what was learned off the uncertainty, and let all of it grow by what is forgotten."""
        for row, gain in zip(self._covariance, spread, strict=True):
            for column, part in enumerate(spread):
                row[column] = (row[column] - gain * part / weight) / _FORGETTING
        for index, prior in enumerate(self._priors):
            if self._covariance[index][index] > prior:
                self._bound(index, sqrt(prior / self._covariance[index][index]))

    def _bound(self, index: int, factor: float) -> None:
        """Scale one row and its column, which keeps the matrix a covariance."""
        for other in range(len(self._priors)):
            self._covariance[index][other] *= factor
            self._covariance[other][index] *= factor


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
