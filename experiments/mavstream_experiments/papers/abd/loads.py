"""Workload D at three loads: what is published for one of them, without its number, should hold around it."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most
from mavstream_experiments.model import Cell, Claim, Experiment, Table
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import CALIBRATION, THREE, reduction
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

_LOADS = (0.80, 0.84, 0.88)
_POLICIES = ("cqc", "abd")


def _name(policy: str, load: float) -> str:
    return f"{policy} {load:.2f}"


def _least_gain(table: Table) -> float:
    return min(
        reduction(table, "class1.mean", of=_name("abd", load), against=_name("cqc", load)) for load in _LOADS
    )


register(
    Experiment(
        name="abd-loads",
        paper=PAPER,
        title="Workload D at loads of 0.80, 0.84 and 0.88",
        about="Experiment 1 at three loads: the text's system is 'loaded, but not overloaded', without a "
        "number. The quota slice has to adapt to each of them.",
        calibration=CALIBRATION + " Here also scaled to 0.84 and 0.88.",
        cells={
            _name(policy, load): Cell("D", policy, settings={"utilisation": load})
            for load in _LOADS
            for policy in _POLICIES
        },
        claims=(
            Claim(
                "ABD does not starve class 3 at any load (response time, class 3 to class 1, largest)",
                "'without starving Class 3' (5.3.2)",
                lambda table: max(table[_name("abd", load)]["starvation"] for load in _LOADS),
                holds=at_most(5),
                unit="times",
                no_effect=True,
            ),
            Claim(
                "ABD has no priority inversion at any load (inversion ratio, largest)",
                "none (5.3.2)",
                lambda table: max(table[_name("abd", load)]["inversion"] for load in _LOADS),
                holds=at_most(0),
                no_effect=True,
            ),
            Claim(
                "class 1 is faster under ABD than under CQC at every load (reduction, least)",
                "by 36.6 % at one load (figure 9)",
                _least_gain,
                holds=at_least(30),
                partly=above(0),
                unit="%",
            ),
        ),
        picture=Lines(
            "load",
            "mean response time, ms",
            {
                f"{name.replace('class', 'class ')}, {policy.upper()}": {
                    load: (_name(policy, load), f"{name}.mean") for load in _LOADS
                }
                for policy in _POLICIES
                for name in THREE
            },
            log_y=True,
        ),
    )
)
