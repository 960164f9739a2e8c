"""Scale_Overld, figures 82 and 83: the input rate rises until the cores are overloaded."""

from __future__ import annotations

from math import isfinite, nan
from statistics import fmean

from mavstream_experiments.bands import at_least, at_most, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.over_time import mean_over_time
from mavstream_experiments.papers.mbd.scale_cqs import CORES
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_RISE = "a drastic rise"
_STRETCH = 0.2
_STEP_S = 0.36 * _STRETCH
_RATES = range(600, 2500, 100)
_SHOWN = range(600, 1900, 100)
_DRASTIC = 3.0
"""Response time, to that at the usual 1200 tuples/s, from which on it has risen drastically."""


def by_rate(result: Result) -> Metrics:
    """Return `at.RATE`: the mean response time in ms while tuples arrive at this rate."""
    means = mean_over_time(result, _STEP_S)
    return {f"at.{rate}": float(mean) for rate, mean in zip(_RATES, means, strict=False) if isfinite(mean)}


def _knees(table: Table) -> list[int]:
    """Return for each number of cores the rate at which the response time has risen drastically.

    That is the end of the range if it never does. The list is empty if it does so on no number of cores.
    """
    found = []
    for metrics in table.values():
        limit = _DRASTIC * metrics["at.1200"]
        above_limit = (rate for rate in _RATES if rate > 1200 and metrics.get(f"at.{rate}", 0) > limit)
        found.append(next(above_limit, _RATES.stop))
    return [] if min(found) == _RATES.stop else found


def _mean_knee(table: Table) -> float:
    knees = _knees(table)
    return fmean(knees) if knees else nan


def _spread_of_knees(table: Table) -> float:
    knees = _knees(table)
    return max(knees) / min(knees) if knees else nan


def _apart(table: Table) -> float:
    """Return the largest ratio of response times on two numbers of cores at the same rate."""
    ratios = []
    for rate in range(1000, 1800, 100):
        found = [metrics[f"at.{rate}"] for metrics in table.values()]
        ratios.append(max(found) / min(found))
    return max(ratios)


register(
    Experiment(
        name="mbd-scale-overload",
        paper=PAPER,
        title="Scale_Overld: an input rate that rises to overload",
        about=(
            "Mean response time over time of workloads 5O_2 to 5O_16 under MBD without modules, while "
            "the rate rises from 600 to 2400 tuples/s."
        ),
        calibration=(
            "The utilisation (0.75 at 1200 tuples/s) is fitted to the published overload at 1600, so "
            "that this number is not a finding; that it is the same on 2 to 16 cores is. The rate "
            "rises in steps of 100 (fitted) and five times as fast as published, 0.072 s each, to save "
            "time."
        ),
        cells={
            str(cores): Cell(f"5O_{cores}", "mbd", mbd(), {"parameters": {"stretch": _STRETCH}}, by_rate)
            for cores in CORES
        },
        claims=(
            Claim(
                "the response time rises drastically (to 3 times that at 1200) at (mean over the cores)",
                "1600 tuples/s (figure 83)",
                _mean_knee,
                holds=between(1500, 1700),
                partly=between(1400, 1800),
                unit="tuples/s",
                fitted=True,
                needs=_RISE,
            ),
            Claim(
                "it does so at the same rate on 2 to 16 cores (highest rate to lowest)",
                "the same pattern, from 1600 tuples/s on (6.3.2.3)",
                _spread_of_knees,
                holds=at_most(1.07),  # one step of the rate at 1600 tuples/s
                partly=at_most(1.14),
                unit="times",
                needs=_RISE,
            ),
            Claim(
                "response times are the same on 2 to 16 cores (largest ratio of two, 1000 to 1700 tuples/s)",
                "the same way under either of the workloads (figure 83)",
                _apart,
                holds=at_most(1.25),
                partly=at_most(1.6),
                unit="times",
                no_effect=True,
            ),
            Claim(
                "under overload it rises steeply (1800 to 1600 tuples/s on 16 cores)",
                "increases exponentially (6.3.2.3)",
                lambda table: table["16"]["at.1800"] / table["16"]["at.1600"],
                holds=at_least(2),
                partly=at_least(1.3),
                unit="times",
            ),
        ),
        picture=Lines(
            x="input rate, tuples/s",
            y="mean response time, ms",
            series={
                f"{cores} cores": {rate: (str(cores), f"at.{rate}") for rate in _SHOWN} for cores in CORES
            },
            log_y=True,
        ),
    )
)
