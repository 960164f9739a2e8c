"""Figure 4: three classes with equal query load, under HR, round robin and CQC."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, between
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.cqc import PAPER
from mavstream_experiments.papers.cqc.cells import (
    CALIBRATION,
    boxes,
    cells_of,
    class_n_is_slower,
    class_n_keeps_up,
    gain,
)
from mavstream_experiments.registry import register

register(
    Experiment(
        name="cqc-figure-4",
        paper=PAPER,
        title="Figure 4: workload A, three classes with equal load",
        about="Response times of the classes under round robin, HR and CQC on one core (figure 5 of the "
        "dissertation).",
        calibration=CALIBRATION,
        cells=cells_of("A"),
        claims=(
            Claim(
                "class H is faster under CQC than under HR (response time, HR to CQC)",
                "9.4 times (figure 4)",
                gain,
                holds=at_least(3),
                partly=at_least(1.5),
                unit="times",
                required=True,
            ),
            Claim(
                "this gain has the published size (half to twice)",
                "9.4 times (figure 4)",
                gain,
                holds=between(4.7, 18.8),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "class C, a third of the load, is slower under CQC than under HR (response time, CQC to HR)",
                "'a higher average response time for this workload' (5.2)",
                lambda table: 1 / gain(table, "C"),
                holds=above(1),
                unit="times",
            ),
            class_n_is_slower("5.2, figure 4"),
            class_n_keeps_up(),
            Claim(
                "HR has the lowest mean response time over all answers (the next lowest to HR)",
                "'HR offers the best average response time' (4.1)",
                lambda table: min(table["rr"]["mean"], table["cqc"]["mean"]) / table["hr"]["mean"],
                holds=above(1),
                unit="times",
            ),
        ),
        picture=boxes(),
        quick=("hr", "rr"),
    )
)
