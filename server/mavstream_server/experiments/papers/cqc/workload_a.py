"""Figure 4: three classes with equal query load, under HR, round robin and CQC."""

from __future__ import annotations

from mavstream_server.experiments.model import Cell, Claim, Experiment, Table, at_least
from mavstream_server.experiments.papers.cqc import PAPER
from mavstream_server.experiments.pictures_model import Boxes
from mavstream_server.experiments.registry import register

_SETTINGS = {"utilisation": 0.95, "seconds": 10.0}
_POLICIES = ("hr", "rr", "cqc")


def _gain(table: Table) -> float:
    return table["hr"]["H.mean"] / table["cqc"]["H.mean"]


register(
    Experiment(
        name="cqc-figure-4",
        paper=PAPER,
        title="Workload A: three classes with equal load",
        about="Response times of the classes under HR, round robin and CQC on one core.",
        calibration="Costs per tuple are scaled to a utilisation of 0.95 (fitted); rates and priorities are the paper's.",
        cells={policy: Cell("A", policy, settings=_SETTINGS) for policy in _POLICIES},
        claims=(
            Claim(
                "class H answers earlier under CQC than under HR",
                "9.4 times (figure 4)",
                _gain,
                holds=at_least(3),
                partly=at_least(1.5),
                unit="times",
                required=True,
            ),
        ),
        picture=Boxes({policy: policy for policy in _POLICIES}, classes=("H", "C", "N")),
        quick=("hr", "cqc"),
    )
)
