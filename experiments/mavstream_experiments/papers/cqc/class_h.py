"""Figure 3: class H under all schedulers on workloads A, B and C, and alone on the machine."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least
from mavstream_experiments.model import Claim, Experiment, Table
from mavstream_experiments.papers.cqc import PAPER
from mavstream_experiments.papers.cqc.cells import CALIBRATION, LABELS, cell
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_WORKLOADS = ("A", "B", "C")
_ALONE = "alone"


def _gain(table: Table, workload: str) -> float:
    return table[f"{workload} hr"]["H.mean"] / table[f"{workload} cqc"]["H.mean"]


register(
    Experiment(
        name="cqc-figure-3",
        paper=PAPER,
        title="Figure 3: class H on workloads A, B and C",
        about="Mean response time of class H under round robin, HR and CQC, and under HR without the other "
        "classes (figure 4 of the dissertation).",
        calibration=CALIBRATION,
        cells={f"{workload} {policy}": cell(workload, policy) for workload in _WORKLOADS for policy in LABELS}
        | {f"{workload} {_ALONE}": cell(f"{workload}_H", "hr") for workload in _WORKLOADS},
        claims=(
            Claim(
                "class H is faster under CQC than under HR on every workload (HR to CQC, least)",
                "by a factor of at least 9.4 (5.2)",
                lambda table: min(_gain(table, workload) for workload in _WORKLOADS),
                holds=at_least(9.4),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "this gain is least on workload A, where class H has the most queries (next to A)",
                "9.4 on A against 19.8 on B and 19.3 on C (figures 4 to 6)",
                lambda table: min(_gain(table, "B"), _gain(table, "C")) / _gain(table, "A"),
                holds=at_least(1.5),
                partly=above(1),
                unit="times",
            ),
        ),
        picture=Bars(
            "mean response time of class H, ms",
            {
                workload: {label: (f"{workload} {policy}", "H.mean") for policy, label in LABELS.items()}
                | {"H only": (f"{workload} {_ALONE}", "H.mean")}
                for workload in _WORKLOADS
            },
            log_y=True,
        ),
    )
)
