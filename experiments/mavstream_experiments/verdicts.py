"""Verdicts: what follows for a claim from the values that the seeds gave.

The values of the seeds give a mean and its 95 % confidence interval, and the interval alone decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import inf, isfinite, isnan, nan, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from mavstream_experiments.model import Claim, Experiment, Table

# Student's t, two-sided 95 %, by degrees of freedom from 1 on.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip
_T_LARGE = 1.96

FEWEST_SEEDS = 3
"""Fewer values give no interval: two counts that happen to be equal would have one of no width."""


class Verdict(StrEnum):
    """The outcome of a claim."""

    REPRODUCED = "reproduced"
    """The whole interval lies in the claim's band."""
    PARTLY = "partly"
    """The whole interval lies in the claim's wider band."""
    UNDECIDED = "undecided"
    """The interval crosses an end of the band: more seeds are needed."""
    NOT = "not reproduced"
    """The whole interval lies outside the band."""
    FITTED = "fitted"
    """The whole interval lies in the band because the calibration was chosen so: no evidence."""
    UNTESTED = "untested"
    """No seed showed what the claim is about, for example an inversion that could be removed."""


class Estimate(NamedTuple):
    """A mean and the ends of its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    seeds: int
    """Number of values that it was made from."""


class Finding(NamedTuple):
    """A claim with its estimate and verdict."""

    experiment: str
    claim: Claim
    measured: Estimate
    verdict: Verdict


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean and the confidence interval of independent values.

    The interval is unbounded if there are fewer than `FEWEST_SEEDS` values or one of them is not finite.
    """
    count = len(values)
    mean = fmean(values) if values else nan
    if count < FEWEST_SEEDS or not all(isfinite(value) for value in values):
        return Estimate(mean, -inf, inf, count)
    freedom = count - 1
    factor = _T[freedom - 1] if freedom <= len(_T) else _T_LARGE
    half = factor * stdev(values) / sqrt(count)
    return Estimate(mean, mean - half, mean + half, count)


def findings(experiment: Experiment, tables: Sequence[Table]) -> list[Finding]:
    """Return a finding for each claim of an experiment, from one table of metrics per seed."""
    found = []
    for claim in experiment.claims:
        values = [claim.value(table) for table in tables]
        measured = estimate([value for value in values if not isnan(value)])
        found.append(Finding(experiment.name, claim, measured, verdict(claim, measured)))
    return found


def verdict(claim: Claim, measured: Estimate) -> Verdict:
    """Return the verdict that follows from where the interval lies."""
    if not measured.seeds:
        return Verdict.UNTESTED
    interval = measured.low, measured.high
    if claim.holds.covers(*interval):
        return Verdict.FITTED if claim.fitted else Verdict.REPRODUCED
    if claim.partly is not None and claim.partly.covers(*interval):
        return Verdict.PARTLY
    return Verdict.NOT if claim.holds.excludes(*interval) else Verdict.UNDECIDED
