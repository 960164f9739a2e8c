"""Shared by the experiments of the ABD chapter: cells, common claims and pictures."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_experiments.bands import above, at_least, at_most
from mavstream_experiments.model import Cell, Claim, Table
from mavstream_experiments.pictures_model import Bars

THREE = ("class1", "class2", "class3")
FIVE = (*THREE, "class4", "class5")
LABELS = {"wehr": "WeHR", "cqc": "CQC", "abd": "ABD"}
SETTINGS = {"utilisation": 0.80}
CALIBRATION = (
    "Queries by kind and class, rates, priorities, tuples per stream, CQC's period of 30 ms and ABD's first "
    "slice of 50 us are the dissertation's (tables 3 to 5). Fitted: operator costs, scaled to a utilisation "
    "of 0.80 of the operators' core by work on tuples alone; 6 us of set-up and 3 us of context switch per "
    "call, noise of 5 % (the text has the noise). ABD's bound of 100 ms on the slice is "
    "ours; no run reaches it."
)
_SHARED = " Also fitted: which aggregates, joins and selections are in which class."
CALIBRATION_BY_KIND = CALIBRATION + _SHARED


def cell(workload: str, policy: str) -> Cell:
    """Return the run of a workload under a policy; the same for all experiments, so that they share it."""
    return Cell(workload, policy, settings=SETTINGS)


def cells_of(workload: str, policies: Iterable[str] = ("cqc", "abd")) -> dict[str, Cell]:
    """Return the runs of a workload, by policy."""
    return {policy: cell(workload, policy) for policy in policies}


def bars(classes: Iterable[str], policies: Iterable[str] = ("cqc", "abd"), log_y: bool = False) -> Bars:
    """Return the picture of mean response times by class, and of their weighted mean."""
    metrics = {name.replace("class", "class "): f"{name}.mean" for name in classes} | {"Wavg": "weighted"}
    groups = {
        label: {LABELS[policy]: (policy, metric) for policy in policies} for label, metric in metrics.items()
    }
    return Bars("mean response time, ms", groups, log_y=log_y)


def reduction(table: Table, metric: str, of: str = "abd", against: str = "cqc") -> float:
    """Return by how many percent a metric is lower under one policy than under another."""
    return 100 * (1 - table[of][metric] / table[against][metric])


def required_claims(class_1: float, source: str) -> tuple[Claim, Claim]:
    """Return the claims that a release is held to: class 1 gains and no class is inverted."""
    return (
        Claim(
            "class 1 is faster under ABD than under CQC (reduction)",
            f"by {class_1} % ({source})",
            lambda table: reduction(table, "class1.mean"),
            holds=at_least(30),
            partly=above(0),
            unit="%",
            required=True,
        ),
        Claim(
            "ABD has no priority inversion (inversion ratio)",
            "none (5.3.2)",
            lambda table: table["abd"]["inversion"],
            holds=at_most(0),
            required=True,
            no_effect=True,
        ),
    )


def weighted_claim(published: float, source: str) -> Claim:
    """Return the claim that the weighted mean falls by at least three quarters of the published size."""
    return Claim(
        "the weighted mean (Wavg) is lower under ABD than under CQC (reduction)",
        f"by {published} % ({source})",
        lambda table: reduction(table, "weighted"),
        holds=at_least(round(0.75 * published, 1)),
        partly=above(0),
        unit="%",
    )
