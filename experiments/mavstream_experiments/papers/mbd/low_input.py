"""LowInput, figures 84 to 94: one class gets 500 tuples/s instead of 1200; modules act on the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mavstream_experiments.bands import above, at_least, at_most, below, between
from mavstream_experiments.model import Cell, Claim, Experiment
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.values import (
    TO_REMOVE,
    first_to_be_stable,
    metric,
    nearer,
    over_least,
    over_most,
    ratio,
    remaining_inversion,
)
from mavstream_experiments.papers.mbd.variants import MODULES, mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

SECONDS = 1.0
CALIBRATION = (
    "Costs as in Scale_CQs. Joins are synchronised (each side waits for the other stream to reach the same "
    "time): fitted, because without it no class is ever inverted. The modules are corrected as their "
    "docstrings say, their windows are rounds of the schedule. Rates, priorities and cores are the "
    f"dissertation's; {SECONDS:g} s is simulated from the start, in which the modules adapt."
)
PLAIN = "mbd"


def cell(slow: int | None, inversion: str = "none", **more: Any) -> Cell:
    """Return workload 5G_4 under MBD with a module; the class with the number `slow` gets little input."""
    low = {} if slow is None else {f"rate_{slow}": 500}
    settings = {"seconds": SECONDS, "parameters": low}
    return Cell("5G_low", "mbd", {**mbd(inversion), **more}, settings)


def bars(cells: Sequence[str], kind: str = "mean") -> Bars:
    """Return the picture of the classes' response times by module; `kind` is `mean` or `p75`."""
    unit = "mean" if kind == "mean" else "75th percentile of"
    return Bars(
        y=f"{unit} response time, ms",
        groups={name: {one: (name, f"{one}.{kind}") for one in FIVE} for name in cells},
    )


def corrected(modules: Sequence[str], published: str, level: str = "") -> tuple[Claim, ...]:
    """Return the claims that modules remove the inversion of MBD without modules."""
    return tuple(
        Claim(
            f"{module.upper()} removes the inversion (remaining share of the inversion ratio)",
            published,
            remaining_inversion(module, PLAIN, level),
            holds=at_most(0),
            partly=at_most(50),
            unit="%",
            needs=TO_REMOVE,
        )
        for module in modules
    )


def quickest(
    module: str, others: Sequence[str], updates: str, time: str, level: str = ""
) -> tuple[Claim, ...]:
    """Return the claims that a module reaches a stable schedule with the fewest updates and the fastest."""
    ways = (("updates", "with the fewest updates", updates), ("converged", "the fastest", time))
    return tuple(
        Claim(
            f"{module.upper()} reaches a stable schedule {text} of the modules (share of the seeds)",
            published,
            first_to_be_stable(module, others, name, PLAIN, level),
            holds=at_least(100),
            unit="%",
            needs=TO_REMOVE,
        )
        for name, text, published in ways
    )


def slowest(module: str, others: Sequence[str], published: str) -> Claim:
    """Return the claim that a module has the highest response time."""
    return Claim(
        f"{module.upper()} has the highest weighted response time of the modules (to the next)",
        published,
        over_most(module, others, "weighted"),
        holds=above(1),
        unit="times",
    )


def fastest(module: str, others: Sequence[str], published: str) -> Claim:
    """Return the claim that a module has the lowest response time."""
    return Claim(
        f"{module.upper()} has the lowest weighted response time of the modules (to the next)",
        published,
        over_least(module, others, "weighted"),
        holds=below(1),
        unit="times",
    )


def nearest(module: str, others: Sequence[str], published: str) -> Claim:
    """Return the claim that a module changes the weighted response time the least."""
    return Claim(
        f"{module.upper()} is closest to MBD without modules (weighted, nearer than the next by)",
        published,
        nearer(module, others, PLAIN, "weighted"),
        holds=above(0),
        unit="ms",
    )


register(
    Experiment(
        name="mbd-low-input-class-1",
        paper=PAPER,
        title="LowInput Class 1: modules against inversion",
        about=(
            "Workload 5G_4 with 500 instead of 1200 tuples/s for class 1, under MBD without and with a "
            "module."
        ),
        calibration=CALIBRATION + " The module `cascade` is ours.",
        cells={PLAIN: cell(1), **{module: cell(1, module) for module in (*MODULES, "cascade")}},
        claims=(
            Claim(
                "class 1 is slower than class 2 without modules (class 1 to class 2)",
                "higher (figure 84)",
                ratio(PLAIN, "class1.mean", PLAIN, "class2.mean"),
                holds=above(1),
                unit="times",
            ),
            *corrected(MODULES, "none of the modules has inversion at the mean (6.3.3.1)"),
            nearest("dvp", MODULES, "the closest (figure 89)"),
            fastest("dvp", MODULES, "the lowest (6.3.3.1)"),
            slowest("dsp", MODULES, "the highest (figure 89)"),
            *quickest("dvp", MODULES, "the least number (figure 90)", "the fastest (figure 91)"),
        ),
        picture=bars((PLAIN, *MODULES, "cascade")),
    )
)

register(
    Experiment(
        name="mbd-low-input-class-2",
        paper=PAPER,
        title="LowInput Class 2: inversion at the 75th percentile only",
        about="Workload 5G_4 with 500 instead of 1200 tuples/s for class 2, under MBD without modules.",
        calibration=CALIBRATION,
        cells={PLAIN: cell(2)},
        claims=(
            Claim(
                "there is no priority inversion at the mean (inversion ratio)",
                "none (figure 85)",
                metric(PLAIN, "inversion"),
                holds=at_most(0),
                partly=at_most(0.02),
                no_effect=True,
            ),
            Claim(
                "class 2 is slower than class 3 at the 75th percentile (class 2 to class 3)",
                "higher (figure 85)",
                ratio(PLAIN, "class2.p75", PLAIN, "class3.p75"),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=bars((PLAIN,), "p75"),
    )
)

register(
    Experiment(
        name="mbd-low-input-class-3",
        paper=PAPER,
        title="LowInput Class 3: modules against inversion",
        about=(
            "Workload 5G_4 with 500 instead of 1200 tuples/s for class 3, under MBD without and with a "
            "module."
        ),
        calibration=CALIBRATION,
        cells={PLAIN: cell(3), **{module: cell(3, module) for module in MODULES}},
        claims=(
            Claim(
                "class 3 is slower than class 4 without modules (class 3 to class 4)",
                "higher (figure 86)",
                ratio(PLAIN, "class3.mean", PLAIN, "class4.mean"),
                holds=above(1),
                unit="times",
            ),
            *corrected(MODULES, "the scheduler detects and corrects it (6.3.3.2)"),
            nearest("ivp", MODULES, "the closest (figure 92)"),
            *quickest("dsp", MODULES, "the least number (figure 93)", "the fastest (figure 94)"),
        ),
        picture=bars((PLAIN, *MODULES)),
    )
)

register(
    Experiment(
        name="mbd-low-input-class-4",
        paper=PAPER,
        title="LowInput Class 4: no inversion",
        about="Workload 5G_4 with 500 instead of 1200 tuples/s for class 4, under MBD without modules.",
        calibration=CALIBRATION,
        cells={PLAIN: cell(4)},
        claims=(
            Claim(
                "there is no priority inversion at the mean (inversion ratio)",
                "none (figure 87, 6.3.3)",
                metric(PLAIN, "inversion"),
                holds=at_most(0),
                partly=at_most(0.02),
                no_effect=True,
            ),
            Claim(
                "classes 4 and 5 have similar response times (class 4 to class 5)",
                "similar (figure 87)",
                ratio(PLAIN, "class4.mean", PLAIN, "class5.mean"),
                holds=between(0.85, 1),
                partly=between(0.75, 1.1),
                unit="times",
                no_effect=True,
            ),
        ),
        picture=bars((PLAIN,)),
    )
)

register(
    Experiment(
        name="mbd-low-input-class-5",
        paper=PAPER,
        title="LowInput Class 5: no inversion",
        about="Workload 5G_4 with 500 instead of 1200 tuples/s for class 5, under MBD without modules.",
        calibration=CALIBRATION,
        cells={PLAIN: cell(5), "full input": cell(None)},
        claims=(
            Claim(
                "there is no priority inversion at the mean (inversion ratio)",
                "none (figure 88)",
                metric(PLAIN, "inversion"),
                holds=at_most(0),
                no_effect=True,
            ),
            Claim(
                "class 5 is slower than with full input (500 to 1200 tuples/s)",
                "increases (figure 88)",
                ratio(PLAIN, "class5.mean", "full input"),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=bars((PLAIN, "full input")),
    )
)
