"""Figures 10 and 11: the same queries, with the lightest class first and last in priority."""

from __future__ import annotations

from mavstream_experiments.bands import above
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import (
    CALIBRATION_BY_KIND,
    THREE,
    bars,
    cells_of,
    required_claims,
    weighted_claim,
)
from mavstream_experiments.registry import register

register(
    Experiment(
        name="abd-figure-10",
        paper=PAPER,
        title="Figure 10: workload E, class 1 is two joins",
        about="Response times under CQC and ABD if class 1 is by far the lightest (experiment 2).",
        calibration=CALIBRATION_BY_KIND,
        cells=cells_of("E"),
        claims=(
            *required_claims(52.2, "figure 10"),
            weighted_claim(43.1, "figure 10"),
            Claim(
                "CQC has priority inversion: class 1 is slower than class 2 (class 1 to class 2)",
                "'due to the accumulated wait time for Class 1' (5.3.2)",
                lambda table: table["cqc"]["class1.mean"] / table["cqc"]["class2.mean"],
                holds=above(1),
                unit="times",
            ),
        ),
        picture=bars(THREE),
    )
)

register(
    Experiment(
        name="abd-figure-11",
        paper=PAPER,
        title="Figure 11: workload F, class 1 has most queries",
        about="Workload E with classes 1 and 3 exchanged, under CQC and ABD (experiment 2).",
        calibration=CALIBRATION_BY_KIND,
        cells=cells_of("F"),
        claims=(*required_claims(38.6, "figure 11"), weighted_claim(23.7, "figure 11")),
        picture=bars(THREE),
    )
)
