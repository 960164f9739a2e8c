"""The roulette wheel: chances in proportion to scores (AMoS paper, 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def chances(scores: Sequence[float]) -> list[float]:
    """Return the share of the wheel that each score gets; equal ones if no score is above 0."""
    slices = [max(score, 0.0) for score in scores]
    total = sum(slices)
    return [part / total for part in slices] if total > 0 else [1 / len(slices)] * len(slices)


def spin(scores: Sequence[float], random: Random) -> int:
    """Spin the wheel once and return the place of the score under the marker."""
    return random.choices(range(len(scores)), chances(scores))[0]
