"""Figure 12: five classes, the middle one the heaviest."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, Table, at_least
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import (
    CALIBRATION_BY_KIND,
    FIVE,
    bars,
    cells_of,
    held_claims,
    weighted_claim,
)
from mavstream_experiments.registry import register


def _behind(table: Table, place: int) -> float:
    """Return what a class takes under CQC, to what the fastest class below it takes."""
    means = [table["cqc"][f"{name}.mean"] for name in FIVE]
    return means[place] / min(means[place + 1 :])


register(
    Experiment(
        name="abd-figure-12",
        paper=PAPER,
        title="Figure 12: workload 5G, five classes",
        about="Response times of five classes under CQC and ABD (experiment 2).",
        calibration=CALIBRATION_BY_KIND,
        cells=cells_of("5G"),
        claims=(
            *held_claims(41.5, "figure 12"),
            weighted_claim(19.1, "figure 12"),
            Claim(
                "CQC has priority inversion for classes 1 and 2: each answers later than some class below "
                "(the lesser of the two)",
                "'for classes 1 and 2' (5.3.2)",
                lambda table: min(_behind(table, 0), _behind(table, 1)),
                holds=at_least(1),
                unit="times",
            ),
        ),
        picture=bars(FIVE),
    )
)
