"""The schedulers of 6.2.1 side by side: what the five Compare experiments have in common."""

from __future__ import annotations

from mavstream_experiments.model import Cell, Claim, at_least, at_most
from mavstream_experiments.papers.mbd.claiming import (
    figure,
    inversion_at_any_level,
    inverted,
    ratio,
)
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Boxes

BASELINES = ("mrr", "morr", "ml", "mol", "mprr", "pct", "pct_s")
THREE = ("class1", "class2", "class3")
FIVE = (*THREE, "class4", "class5")
SHORT = 0.4
"""Seconds that are enough for schedulers that keep up,"""
LONGER = 1.0
"""and for MPRR, whose queues take a while to become as long as they stay."""
WHOLE = 2.75
"""Seconds in which 10,000 tuples come at 3600 tuples/s: where queues grow, it matters how long it lasts."""
SIX_CORES = (
    "Fitted: costs (utilisation 0.94), selectivities of joins and which queries a class has of each kind. "
    f"Of each stream {SHORT:g} s are simulated, {LONGER:g} s under MPRR, whose queues settle slowly, and all "
    "10,000 tuples where a scheduler is overloaded. Classes, priorities, rates and cores are the "
    "dissertation's."
)


def cells(workload: str, overloaded: tuple[str, ...] = ()) -> dict[str, Cell]:
    """Return MBD without modules, all baselines, and MBD as it is used here if nothing else is asked for."""
    found = {"mbd": Cell(workload, "mbd", mbd(), {"seconds": SHORT})}
    for policy in BASELINES:
        seconds = WHOLE if policy in overloaded else LONGER if policy == "mprr" else SHORT
        found[policy] = Cell(workload, policy, settings={"seconds": seconds})
    found["mbd with modules"] = Cell(workload, "mbd", settings={"seconds": SHORT})
    return found


def boxes(classes: tuple[str, ...]) -> Boxes:
    """Return the picture of all schedulers."""
    labels = {name: name for name in ("mbd", *BASELINES)}
    return Boxes({**labels, "mbd+": "mbd with modules"}, classes)


def about_mbd(inversion: str, starvation: str) -> tuple[Claim, ...]:
    """Return what all five experiments claim of MBD; the arguments say where that is published."""
    return (
        Claim(
            "MBD has no priority inversion at the mean",
            inversion,
            figure("mbd", "inversion"),
            holds=at_most(0),
            required=True,
        ),
        Claim(
            "nor at the median, the 75th, 90th or 95th percentile",
            inversion,
            inversion_at_any_level("mbd"),
            holds=at_most(0),
            partly=at_most(0.05),
        ),
        Claim(
            "MBD starves nobody: the lowest class's response time over the highest one's",
            starvation,
            figure("mbd", "starvation"),
            holds=at_most(5),
            required=True,
        ),
        Claim(
            "MBD with the modules that are on by default has no inversion at the mean either",
            "modules are there to prevent it (6.1.5)",
            figure("mbd with modules", "inversion"),
            holds=at_most(0),
        ),
    )


def about_mprr(starvation: str, slower: str) -> tuple[Claim, ...]:
    """Return what is claimed of MPRR beside MBD."""
    return (
        Claim(
            "MPRR has no inversion at the mean",
            "none (6.3.1, inversion figures)",
            figure("mprr", "inversion"),
            holds=at_most(0),
        ),
        Claim(
            "the starvation ratio of MPRR is higher than that of MBD",
            starvation,
            ratio("mprr", "starvation", "mbd"),
            holds=at_least(1),
            unit="times",
        ),
        Claim(
            "the weighted response time under MPRR is higher than under MBD",
            slower,
            ratio("mprr", "weighted", "mbd"),
            holds=at_least(1),
            unit="times",
        ),
    )


def about_round_robin(published: str) -> Claim:
    """Return what is claimed of whole queries against operators by turns."""
    return Claim(
        "MORR answers later than MRR: tuples wait at every operator anew",
        published,
        ratio("morr", "mean", "mrr"),
        holds=at_least(1),
        unit="times",
    )


def inverting(policies: tuple[str, ...], published: str) -> Claim:
    """Return the claim that all of these have priority inversion."""
    return Claim(
        f"{', '.join(policies)} have priority inversion: how many of them do",
        published,
        inverted(policies),
        holds=at_least(len(policies)),
        partly=at_least(len(policies) / 2),
    )
