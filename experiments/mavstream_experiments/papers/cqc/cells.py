"""Shared by the experiments of the CQC paper: cells, ratios of response times and common claims."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_most
from mavstream_experiments.model import Cell, Claim, Table
from mavstream_experiments.pictures_model import Boxes

CLASSES = ("H", "C", "N")
LABELS = {"rr": "RR", "hr": "HR", "cqc": "CQC"}
UTILISATION = 0.95
CALIBRATION = (
    "Queries, rates, priorities, tuples per stream and the period of 1000 us are the paper's (tables 1, 2). "
    f"Fitted: operator costs, scaled to a utilisation of {UTILISATION} by work on tuples alone; 6 us of "
    "set-up and 3 us of context switch per call; 3 us for polling a source that has no tuple. Response "
    "times count from arrival. The two empty polls after which a class gives up its turn cost nothing here."
)

_KEEPS_UP = 1.02  # length of a run to that of the streams if no queue is left when they end


def cell(workload: str, policy: str) -> Cell:
    """Return the run of a workload under a policy; the same for all experiments, so that they share it."""
    return Cell(workload, policy, settings={"utilisation": UTILISATION})


def cells_of(workload: str) -> dict[str, Cell]:
    """Return the runs of a workload, by policy."""
    return {policy: cell(workload, policy) for policy in LABELS}


def boxes() -> Boxes:
    """Return the picture of the response times by class and policy."""
    return Boxes({label: policy for policy, label in LABELS.items()}, classes=CLASSES)


def gain(table: Table, name: str = "H") -> float:
    """Return the mean response time of a class under HR divided by that under CQC."""
    return table["hr"][f"{name}.mean"] / table["cqc"][f"{name}.mean"]


def class_n_is_slower(source: str) -> Claim:
    """Return the claim that CQC favours the other classes at the cost of class N."""
    return Claim(
        "class N is slower under CQC than under HR (response time, CQC to HR)",
        f"'impairs' class N ({source})",
        lambda table: 1 / gain(table, "N"),
        holds=above(1),
        unit="times",
    )


def class_n_keeps_up() -> Claim:
    """Return the claim that no class is overloaded under CQC."""
    return Claim(
        "class N is not overloaded under CQC: the run ends with the streams, as under HR (length, CQC to HR)",
        "loaded 'without overloading it' (5.1); a period such that the lowest class is not overloaded "
        "(dissertation, 4.2.1)",
        lambda table: table["cqc"]["seconds"] / table["hr"]["seconds"],
        holds=at_most(_KEEPS_UP),
        unit="times",
        no_effect=True,
    )
