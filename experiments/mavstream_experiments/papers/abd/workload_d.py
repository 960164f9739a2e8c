"""Figure 9: identical classes under WeHR, CQC and ABD."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most, between
from mavstream_experiments.model import Claim, Experiment, Table
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import (
    CALIBRATION,
    LABELS,
    THREE,
    bars,
    cell,
    cells_of,
    reduction,
    required_claims,
    weighted_claim,
)
from mavstream_experiments.registry import register

_OTHERS = ("E", "F", "5G")


def _spread(table: Table, policy: str) -> float:
    """Return the response time of the slowest class divided by that of the fastest."""
    means = [table[policy][f"{name}.mean"] for name in THREE]
    return max(means) / min(means)


def _least_gain_elsewhere(table: Table) -> float:
    return min(
        table[f"{workload} wehr"]["weighted"] / table[f"{workload} abd"]["weighted"] for workload in _OTHERS
    )


register(
    Experiment(
        name="abd-figure-9",
        paper=PAPER,
        title="Figure 9: workload D under WeHR, CQC and ABD",
        about="Response times of three identical classes, and their mean weighted by priority (experiment "
        "1). WeHR is also run on the other workloads, where it is said to perform alike.",
        calibration=CALIBRATION,
        cells={
            **cells_of("D", LABELS),
            **{f"{workload} {policy}": cell(workload, policy) for workload in _OTHERS for policy in LABELS},
        },
        claims=(
            *required_claims(36.6, "figure 9"),
            weighted_claim(12.16, "figure 9"),
            Claim(
                "the weighted mean is lower under ABD than under WeHR (WeHR to ABD)",
                "26 times (5.3.2)",
                lambda table: table["wehr"]["weighted"] / table["abd"]["weighted"],
                holds=between(13, 52),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "class 1 is faster under WeHR than under ABD (reduction)",
                "by 10 % (5.3.2)",
                lambda table: reduction(table, "class1.mean", of="wehr", against="abd"),
                holds=between(5, 20),
                partly=above(0),
                unit="%",
            ),
            Claim(
                "WeHR starves class 3 (its mean response time)",
                "over two seconds (5.3.2)",
                lambda table: table["wehr"]["class3.mean"] / 1000,
                holds=at_least(2),
                partly=at_least(0.2),
                unit="s",
            ),
            Claim(
                "WeHR performs alike on workloads E, F and 5G (weighted mean, WeHR to ABD, least)",
                "'similar performance for all of the workloads' (5.3.2)",
                _least_gain_elsewhere,
                holds=at_least(13),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "CQC performs like round robin: its classes hardly differ (slowest to fastest)",
                "'very close' (5.3.2)",
                lambda table: _spread(table, "cqc"),
                holds=at_most(1.1),
                partly=at_most(1.25),
                unit="times",
                no_effect=True,
            ),
            Claim(
                "ABD does not starve class 3 (response time, class 3 to class 1)",
                "'without starving Class 3' (5.3.2)",
                lambda table: table["abd"]["starvation"],
                holds=at_most(5),
                unit="times",
                no_effect=True,
            ),
        ),
        picture=bars(THREE, LABELS, log_y=True),
    )
)
