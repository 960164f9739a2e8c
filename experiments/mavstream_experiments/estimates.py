"""Estimates: means over seeds with their confidence intervals, and the verdicts that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import inf, isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from mavstream_experiments.model import Band, Claim, Experiment, Table

# Student's t, two-sided 95 %, by degrees of freedom from 1 on.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip
_T_LARGE = 1.96


class Verdict(StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT = "not"


class Estimate(NamedTuple):
    """A mean and the ends of its 95 % confidence interval."""

    mean: float
    low: float
    high: float


class Finding(NamedTuple):
    """A claim and what was measured of it."""

    experiment: str
    claim: Claim
    measured: Estimate
    verdict: Verdict


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and confidence interval of independent values."""
    if not values or not all(isfinite(value) for value in values):
        mean = fmean(values) if values else nan
        return Estimate(mean, -inf, inf)
    mean = fmean(values)
    if len(values) == 1:
        return Estimate(mean, -inf, inf)
    freedom = len(values) - 1
    factor = _T[freedom - 1] if freedom <= len(_T) else _T_LARGE
    half = factor * stdev(values) / sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def findings(experiment: Experiment, tables: Sequence[Table]) -> list[Finding]:
    """Hold the claims of an experiment against its figures, a table for each seed."""
    found = []
    for claim in experiment.claims:
        measured = estimate([claim.value(table) for table in tables])
        found.append(Finding(experiment.name, claim, measured, verdict(claim, measured)))
    return found


def verdict(claim: Claim, measured: Estimate) -> Verdict:
    """Reproduced: the mean is in the band. Partly: in the wider one, or the interval meets the band."""
    if measured.mean in claim.holds:
        return Verdict.REPRODUCED
    if claim.partly is not None and measured.mean in claim.partly:
        return Verdict.PARTLY
    return Verdict.PARTLY if _meets(measured, claim.holds) else Verdict.NOT


def _meets(measured: Estimate, band: Band) -> bool:
    return isfinite(measured.low) and measured.low <= band.high and band.low <= measured.high
