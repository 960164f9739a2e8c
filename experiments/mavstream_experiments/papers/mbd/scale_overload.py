"""Scale_Overld, figures 82 and 83: the input rate rises until the cores are overloaded."""

from __future__ import annotations

from math import isfinite

from mavstream_experiments.model import (
    Cell,
    Claim,
    Experiment,
    Figures,
    Table,
    at_least,
    at_most,
    between,
)
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.over_time import mean_over_time
from mavstream_experiments.papers.mbd.scale_cqs import CORES
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_STRETCH = 0.2
_STEP_S = 0.36 * _STRETCH
_RATES = range(600, 2500, 100)
_SHOWN = range(600, 1900, 100)
_DRASTIC = 3.0
"""An increase to so many times the response time at the usual 1200 tuples/s."""


def by_rate(result: Result) -> Figures:
    """Return `at.RATE`: the mean response time in ms while tuples came at this rate."""
    means = mean_over_time(result, _STEP_S)
    return {f"at.{rate}": float(mean) for rate, mean in zip(_RATES, means, strict=False) if isfinite(mean)}


def _knee(table: Table, cores: int) -> float:
    figures = table[str(cores)]
    usual = figures["at.1200"]
    return next(rate for rate in _RATES if rate > 1200 and figures.get(f"at.{rate}", 0) > _DRASTIC * usual)


def _apart(table: Table) -> float:
    """Return the largest ratio between response times on different numbers of cores at the same rate."""
    ratios = []
    for rate in range(1000, 1800, 100):
        found = [figures[f"at.{rate}"] for figures in table.values()]
        ratios.append(max(found) / min(found))
    return max(ratios)


register(
    Experiment(
        name="mbd-scale-overload",
        paper=PAPER,
        title="Scale_Overld: an input rate that rises until it is too high",
        about=(
            "Mean response time over time of workloads 5O_2 to 5O_16 under MBD without modules, while "
            "the rate rises from 600 to 2400 tuples/s."
        ),
        calibration=(
            "The utilisation (0.75 at 1200 tuples/s) is fitted to the published overload at 1600, so "
            "that this number is not a finding; that it is the same on 2 to 16 cores is. The rise goes "
            "in steps of 100 (fitted) and five times as fast as published, 0.072 s each, to save time."
        ),
        cells={
            str(cores): Cell(f"5O_{cores}", "mbd", mbd(), {"parameters": {"stretch": _STRETCH}}, by_rate)
            for cores in CORES
        },
        claims=(
            *(
                Claim(
                    f"on {cores} cores the response time rises drastically (to 3 times that at 1200) at",
                    "1600 tuples/s (figure 83)",
                    lambda table, cores=cores: _knee(table, cores),  # type: ignore[misc]
                    holds=between(1500, 1700),
                    partly=between(1400, 1800),
                    unit="tuples/s",
                )
                for cores in CORES
            ),
            Claim(
                (
                    "all numbers of cores show the same pattern: the largest ratio between two of them, to "
                    "1700 tuples/s"
                ),
                "the same way under either of the workloads (figure 83)",
                _apart,
                holds=at_most(1.25),
                partly=at_most(1.6),
                unit="times",
            ),
            Claim(
                "from there on it keeps rising steeply: at 1800 tuples/s over 1600, on 16 cores",
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
