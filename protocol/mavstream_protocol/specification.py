"""Performance specification of AMoS (paper, 3.2): metrics, their directions and weights."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Metric(StrEnum):
    """A metric of a policy, measured over one interval."""

    OUTPUT_RATE = "output_rate"
    """Answers per second."""
    QUEUED_TUPLES = "queued_tuples"
    """Tuples in all queues at the end of the interval."""
    QUEUED_BYTES = "queued_bytes"
    """Bytes in all queues at the end of the interval."""
    DELAY = "delay"
    """Mean response time of the answers in nanoseconds; without answers, the age of the oldest tuple."""
    PENDING_ANSWERS = "pending_answers"
    """Answers expected from the tuples that are waiting at the end of the interval.

    By Little's law it is proportional to delay in the long run, and it includes answers that are held back,
    which delay counts only when they are emitted.
    """


class Quantifier(StrEnum):
    """Whether lower or higher values of a metric are better."""

    MINIMISE = "minimise"
    MAXIMISE = "maximise"

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is: the paper's q."""
        return 1 if self is Quantifier.MAXIMISE else -1


class Requirement(BaseModel):
    """One metric, its direction and its weight."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    metric: Metric
    quantifier: Quantifier
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Weight relative to the others: 3 and 1 mean the same as 0.75 and 0.25."""


class Specification(BaseModel):
    """Requirements that are weighed against each other; absolute targets are for queries to state.

    >>> spec = Specification.of(("delay", "minimise", 70), ("output_rate", "maximise", 30))
    >>> [(str(goal.metric), share) for goal, share in spec.shares]
    [('delay', 0.7), ('output_rate', 0.3)]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    requirements: Annotated[tuple[Requirement, ...], Field(min_length=1)]

    @field_validator("requirements")
    @classmethod
    def _each_metric_once(cls, value: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
        metrics = [requirement.metric for requirement in value]
        for metric in metrics:
            if metrics.count(metric) > 1:
                raise ValueError(f"metric {str(metric)!r} is named more than once; give it one weight")
        return value

    @classmethod
    def of(cls, *requirements: tuple[str, str, float]) -> Specification:
        """Build from (metric, quantifier, weight)."""
        return cls(
            requirements=tuple(
                Requirement(metric=Metric(metric), quantifier=Quantifier(quantifier), weight=weight)
                for metric, quantifier, weight in requirements
            )
        )

    @property
    def shares(self) -> list[tuple[Requirement, float]]:
        """The requirements with their weights scaled to a sum of 1."""
        total = sum(requirement.weight for requirement in self.requirements)
        return [(requirement, requirement.weight / total) for requirement in self.requirements]


DEFAULT_SPECIFICATION = Specification.of(("delay", "minimise", 0.7), ("output_rate", "maximise", 0.3))
"""The first of the AMoS paper's 4.3."""
