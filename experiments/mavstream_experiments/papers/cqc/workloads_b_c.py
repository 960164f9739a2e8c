"""Figures 5 and 6: a few joins in class H and most queries in class N, with two sets of priorities."""

from __future__ import annotations

from mavstream_experiments.bands import Band, above, at_least, between
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.cqc import PAPER
from mavstream_experiments.papers.cqc.cells import (
    CALIBRATION,
    boxes,
    cell,
    cells_of,
    class_n_is_slower,
    class_n_keeps_up,
    gain,
)
from mavstream_experiments.registry import register

_FITTED = " Also fitted: which of the nine aggregates, four joins and six selections are in C and which in N."


def _of_size(published: str, band: Band) -> Claim:
    return Claim(
        "class H is faster under CQC than under HR by the published size (HR to CQC, half to twice)",
        published,
        gain,
        holds=band,
        partly=above(1),
        unit="times",
    )


def _class_c_gains(figure: str) -> Claim:
    return Claim(
        "class C is faster under CQC than under HR, too (response time, HR to CQC)",
        f"by a factor of at least 2.5 (section 6; {figure})",
        lambda table: gain(table, "C"),
        holds=at_least(2.5),
        partly=above(1),
        unit="times",
    )


register(
    Experiment(
        name="cqc-figure-5",
        paper=PAPER,
        title="Figure 5: workload B, priorities 3, 2 and 1",
        about="Response times of the classes if class H has two joins and class N more than half of the "
        "queries (figure 6 of the dissertation).",
        calibration=CALIBRATION + _FITTED,
        cells=cells_of("B"),
        claims=(
            _of_size("19.8 times (figure 5)", between(9.9, 39.6)),
            _class_c_gains("figure 5"),
            class_n_is_slower("5.2, figure 5"),
            class_n_keeps_up(),
        ),
        picture=boxes(),
    )
)

register(
    Experiment(
        name="cqc-figure-6",
        paper=PAPER,
        title="Figure 6: workload C, priorities 6, 3 and 1",
        about="The queries of workload B, with a higher priority of class H over the others (figure 7 of the "
        "dissertation).",
        calibration=CALIBRATION + _FITTED,
        cells={**cells_of("C"), "cqc on B": cell("B", "cqc")},
        claims=(
            Claim(
                "class H is faster under CQC than under HR (response time, HR to CQC)",
                "19.3 times (figure 6)",
                gain,
                holds=at_least(3),
                partly=at_least(1.5),
                unit="times",
                required=True,
            ),
            _of_size("19.3 times (figure 6)", between(9.65, 38.6)),
            _class_c_gains("figure 6"),
            class_n_is_slower("5.2, figure 6"),
            class_n_keeps_up(),
            Claim(
                "class N is slower than on workload B, where its share is a sixth and not a tenth (C to B)",
                "'lower' under B than under C (5.2)",
                lambda table: table["cqc"]["N.mean"] / table["cqc on B"]["N.mean"],
                holds=above(1),
                unit="times",
            ),
        ),
        picture=boxes(),
    )
)
