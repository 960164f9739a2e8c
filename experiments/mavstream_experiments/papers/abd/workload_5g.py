"""Figure 12: five classes, the middle one the heaviest."""

from __future__ import annotations

from mavstream_experiments.bands import above
from mavstream_experiments.model import Claim, Experiment, Table
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import (
    CALIBRATION_BY_KIND,
    FIVE,
    bars,
    cells_of,
    required_claims,
    weighted_claim,
)
from mavstream_experiments.registry import register


def _to_lower_classes(table: Table, index: int) -> float:
    """Return the response time of a class under CQC divided by the least of the classes below it."""
    means = [table["cqc"][f"{name}.mean"] for name in FIVE]
    return means[index] / min(means[index + 1 :])


register(
    Experiment(
        name="abd-figure-12",
        paper=PAPER,
        title="Figure 12: workload 5G, five classes",
        about="Response times of five classes under CQC and ABD (experiment 2).",
        calibration=CALIBRATION_BY_KIND,
        cells=cells_of("5G"),
        claims=(
            *required_claims(41.5, "figure 12"),
            weighted_claim(19.1, "figure 12"),
            Claim(
                "CQC has priority inversion for classes 1 and 2: each is slower than some class below it "
                "(ratio, the lower of both)",
                "'for classes 1 and 2' (5.3.2)",
                lambda table: min(_to_lower_classes(table, 0), _to_lower_classes(table, 1)),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=bars(FIVE),
    )
)
