"""A learner that judges a policy by what it changed, not by the backlog that it inherited."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p, sqrt
from random import Random

from mavstream_protocol.specification import Metric, Specification
from mavstream_server.scheduling.mechanisms.learning.interval import Sample
from mavstream_server.scheduling.mechanisms.learning.learner import Learner

_FORGETTING = 0.99
"""Decay of a sample's weight per interval: half after 69, so that the learner follows a changing load."""
_PRIOR_EFFECT = 1.0
"""Prior variance of a policy's effect on the logarithm of a metric; uncertainty never exceeds it."""
_PRIOR_CARRY = (0.5, 0.25)
"""Prior mean and variance of the part of a metric that carries over to the next interval."""
_FIRST_NOISE = 0.25


class SharpLearner(Learner):
    """A bandit with Thompson sampling over a linear model of each metric's logarithm.

    y(t) = carry * y(t-1) + effect(policy) + noise, estimated by least squares with forgetting. What an
    interval inherits, such as a backlog, is explained by the carry and not attributed to the policy.
    Logarithms make effects relative, so weights compare 10 % less delay with 10 % more output whatever the
    units, and a metric that no policy changes has no influence. Each choice samples the effects within
    their uncertainty and takes the best: policies that are clearly worse are rarely tried, unless their
    last trial is long ago.
    """

    def __init__(self, policies: int) -> None:
        self._policies = policies
        self._models: dict[Metric, _Model] = {}

    def evidence(self, metric: Metric) -> Metric:
        """Judge delay by pending answers, which count against the policy that holds tuples back."""
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
        """Return the policy with the best sampled effects; of equals the first."""
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
    """Recursive least squares over (one-hot policy, previous value) for one metric."""

    def __init__(self, policies: int) -> None:
        self._weights = [0.0] * policies + [_PRIOR_CARRY[0]]
        self._priors = [_PRIOR_EFFECT] * policies + [_PRIOR_CARRY[1]]
        self._covariance = [
            [prior if row == column else 0.0 for column in range(policies + 1)]
            for row, prior in enumerate(self._priors)
        ]
        self._noise = _FIRST_NOISE
        self._origin: float | None = None  # values are relative to the first one: priors are around 0
        self._before = 0.0

    def effect(self, index: int, random: Random | None) -> float:
        """Return a policy's estimated effect, or a sample around it if `random` is given."""
        effect = self._weights[index]
        if random is None:
            return effect
        return random.gauss(effect, sqrt(self._noise * self._covariance[index][index]))

    def fit(self, index: int, value: float) -> None:
        """Add the value of an interval in which a policy was active."""
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
        """Reduce the uncertainty by what was learned, and increase it by what is forgotten."""
        for row, gain in zip(self._covariance, spread, strict=True):
            for column, part in enumerate(spread):
                row[column] = (row[column] - gain * part / weight) / _FORGETTING
        for index, prior in enumerate(self._priors):
            if self._covariance[index][index] > prior:
                self._bound(index, sqrt(prior / self._covariance[index][index]))

    def _bound(self, index: int, factor: float) -> None:
        """Scale one row and its column, which keeps the matrix a valid covariance."""
        for other in range(len(self._priors)):
            self._covariance[index][other] *= factor
            self._covariance[other][index] *= factor


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
