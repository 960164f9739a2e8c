"""What the figures of the CQC paper have in common: their runs, and how response times are compared."""

from __future__ import annotations

from mavstream_experiments.model import Cell, Claim, Table, at_least, at_most
from mavstream_experiments.pictures_model import Boxes

CLASSES = ("H", "C", "N")
LABELS = {"rr": "RR", "hr": "HR", "cqc": "CQC"}
UTILISATION = 0.95
CALIBRATION = (
    "Queries, rates, priorities, tuples per stream and the period of 1000 us are the paper's (tables 1, 2). "
    f"Fitted: what operators cost, scaled to a utilisation of {UTILISATION} by work on tuples alone; 6 us of "
    "set-up and 3 us of context switch per call; 3 us for a look at a source that has nothing. Response "
    "times count from arrival. The two empty polls after which a class gives its turn up cost nothing here."
)

_KEEPS_UP = 1.02  # times the length of a run in which nothing is left over when the streams end


def cell(workload: str, policy: str) -> Cell:
    """Return the run of a workload under a policy; always the same, so that figures share it."""
    return Cell(workload, policy, settings={"utilisation": UTILISATION})


def cells_of(workload: str) -> dict[str, Cell]:
    """Return the runs of a workload, by policy."""
    return {policy: cell(workload, policy) for policy in LABELS}


def boxes() -> Boxes:
    """Return the picture of a workload's classes under each policy."""
    return Boxes({label: policy for policy, label in LABELS.items()}, classes=CLASSES)


def gain(table: Table, name: str = "H") -> float:
    """Return how many times earlier a class answers under CQC than under HR."""
    return table["hr"][f"{name}.mean"] / table["cqc"][f"{name}.mean"]


def class_n_pays(place: str) -> Claim:
    """Return the claim that the least important class is what CQC takes the time from."""
    return Claim(
        "class N answers later under CQC than under HR",
        f"'impairs' class N ({place})",
        lambda table: 1 / gain(table, "N"),
        holds=at_least(1),
        unit="times",
    )


def class_n_keeps_up() -> Claim:
    """Return the claim that nobody is overloaded."""
    return Claim(
        "class N keeps up under CQC: the run is over when the streams are, as under HR (its length to HR's)",
        "loaded 'without overloading it' (5.1); a period such that the lowest class is not overloaded "
        "(dissertation, 4.2.1)",
        lambda table: table["cqc"]["seconds"] / table["hr"]["seconds"],
        holds=at_most(_KEEPS_UP),
        unit="times",
    )
