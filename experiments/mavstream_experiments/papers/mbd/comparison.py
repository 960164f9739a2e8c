"""Shared by the five Compare experiments: the schedulers of 6.2.1, their cells and common claims."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most
from mavstream_experiments.model import Cell, Claim
from mavstream_experiments.papers.mbd.values import inversion_at_any_level, inverted, metric, ratio
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Boxes

BASELINES = ("mrr", "morr", "ml", "mol", "mprr", "pct", "pct_s")
THREE = ("class1", "class2", "class3")
FIVE = (*THREE, "class4", "class5")
SHORT = 0.4
"""Seconds simulated under schedulers that keep up."""
LONGER = 1.0
"""Seconds simulated under MPRR, whose queues take longer to reach their final length."""
WHOLE = 2.75
"""Seconds of all 10,000 tuples at 3600 tuples/s: under overload, response times grow with the run."""
SIX_CORES = (
    "Fitted: costs (utilisation 0.94), selectivities of joins and which queries a class has of each kind. "
    f"Of each stream {SHORT:g} s are simulated, {LONGER:g} s under MPRR, whose queues settle slowly, and all "
    "10,000 tuples under schedulers that are overloaded. Classes, priorities, rates and cores are the "
    "dissertation's."
)


def cells(workload: str, overloaded: tuple[str, ...] = ()) -> dict[str, Cell]:
    """Return MBD without modules, all baselines, and MBD with its default modules."""
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
    """Return the claims of all five experiments about MBD; the arguments are what was published."""
    return (
        Claim(
            "MBD has no priority inversion at the mean (inversion ratio)",
            inversion,
            metric("mbd", "inversion"),
            holds=at_most(0),
            required=True,
            no_effect=True,
        ),
        Claim(
            "MBD has none at the median, the 75th, 90th or 95th percentile either (highest inversion ratio)",
            inversion,
            inversion_at_any_level("mbd"),
            holds=at_most(0),
            partly=at_most(0.05),
            no_effect=True,
        ),
        Claim(
            "MBD starves no class (response time, lowest class to highest)",
            starvation,
            metric("mbd", "starvation"),
            holds=at_most(5),
            required=True,
            no_effect=True,
        ),
        Claim(
            "MBD with its default modules has no priority inversion at the mean either (inversion ratio)",
            "modules are there to prevent it (6.1.5)",
            metric("mbd with modules", "inversion"),
            holds=at_most(0),
            no_effect=True,
        ),
    )


def about_mprr(starvation: str, slower: str) -> tuple[Claim, ...]:
    """Return the claims of all five experiments about MPRR; the arguments are what was published."""
    return (
        Claim(
            "MPRR has no priority inversion at the mean (inversion ratio)",
            "none (6.3.1, inversion figures)",
            metric("mprr", "inversion"),
            holds=at_most(0),
            no_effect=True,
        ),
        Claim(
            "the starvation ratio is higher under MPRR than under MBD (MPRR to MBD)",
            starvation,
            ratio("mprr", "starvation", "mbd"),
            holds=above(1),
            unit="times",
        ),
        Claim(
            "the weighted response time is higher under MPRR than under MBD (MPRR to MBD)",
            slower,
            ratio("mprr", "weighted", "mbd"),
            holds=above(1),
            unit="times",
        ),
    )


def about_round_robin(published: str) -> Claim:
    """Return the claim that round robin over operators is slower than over whole queries."""
    return Claim(
        "MORR is slower than MRR (mean response time, MORR to MRR)",
        published,
        ratio("morr", "mean", "mrr"),
        holds=above(1),
        unit="times",
    )


def inverting(policies: tuple[str, ...], published: str) -> Claim:
    """Return the claim that all of the policies have priority inversion at the mean."""
    return Claim(
        f"{', '.join(policies).upper()} have priority inversion (number of them that do)",
        published,
        inverted(policies),
        holds=at_least(len(policies)),
        partly=at_least(len(policies) / 2),
    )
