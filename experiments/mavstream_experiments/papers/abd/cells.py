"""What the figures of the ABD chapter have in common: their runs, their claims and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_experiments.model import Cell, Claim, Table, at_least, at_most
from mavstream_experiments.pictures_model import Bars

THREE = ("class1", "class2", "class3")
FIVE = (*THREE, "class4", "class5")
LABELS = {"wehr": "WeHR", "cqc": "CQC", "abd": "ABD"}
SETTINGS = {"utilisation": 0.80}
CALIBRATION = (
    "Queries by kind and class, rates, priorities, tuples per stream, CQC's period of 30 ms and ABD's first "
    "slice of 50 us are the dissertation's (tables 3 to 5). Fitted: what operators cost, scaled to a "
    "utilisation of 0.80 of the operators' core by work on tuples alone; 6 us of set-up and 3 us of context "
    "switch per call, noise of 5 % (the text has the noise). ABD's bound of 2 ms on the slice is ours."
)
_SHARED = " Fitted too: which aggregates, joins and selections are in which class."
CALIBRATION_BY_KIND = CALIBRATION + _SHARED


def cell(workload: str, policy: str) -> Cell:
    """Return the run of a workload under a policy; always the same, so that figures share it."""
    return Cell(workload, policy, settings=SETTINGS)


def cells_of(workload: str, policies: Iterable[str] = ("cqc", "abd")) -> dict[str, Cell]:
    """Return the runs of a workload, by policy."""
    return {policy: cell(workload, policy) for policy in policies}


def bars(classes: Iterable[str], policies: Iterable[str] = ("cqc", "abd"), log_y: bool = False) -> Bars:
    """Return the picture of mean response times by class, and of their weighted mean."""
    figures = {name.replace("class", "class "): f"{name}.mean" for name in classes} | {"Wavg": "weighted"}
    groups = {
        label: {LABELS[policy]: (policy, figure) for policy in policies} for label, figure in figures.items()
    }
    return Bars("mean response time, ms", groups, log_y=log_y)


def reduction(table: Table, figure: str, of: str = "abd", against: str = "cqc") -> float:
    """Return by how many percent a figure is lower under one policy than under another."""
    return 100 * (1 - table[of][figure] / table[against][figure])


def held_claims(class_1: float, place: str) -> tuple[Claim, Claim]:
    """Return what a release is held to: class 1 is faster than under CQC, and nothing is inverted."""
    return (
        Claim(
            "class 1 answers earlier under ABD than under CQC",
            f"by {class_1} % ({place})",
            lambda table: reduction(table, "class1.mean"),
            holds=at_least(30),
            partly=at_least(0),
            unit="%",
            required=True,
        ),
        Claim(
            "ABD has no priority inversion (inversion ratio)",
            "none (5.3.2)",
            lambda table: table["abd"]["inversion"],
            holds=at_most(0),
            required=True,
        ),
    )


def weighted_claim(published: float, place: str) -> Claim:
    """Return the claim that the weighted mean is lower under ABD, by three quarters of the size at least."""
    return Claim(
        "the weighted mean (Wavg) is lower under ABD than under CQC",
        f"by {published} % ({place})",
        lambda table: reduction(table, "weighted"),
        holds=at_least(round(0.75 * published, 1)),
        partly=at_least(0),
        unit="%",
    )
