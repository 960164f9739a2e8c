"""LowInput, figures 84 to 94: one class gets 500 tuples/s instead of 1200, and modules watch the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mavstream_experiments.model import Cell, Claim, Experiment, at_least, at_most, between
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import (
    against_least,
    against_most,
    closest,
    figure,
    left_of_inversion,
    ratio,
)
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.variants import MODULES, mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

SECONDS = 1.0
CALIBRATION = (
    "Costs as in Scale_CQs. Joins are synchronised (a side waits until the other stream has come as "
    "far): fitted, for without it no class is ever inverted. The modules are repaired as their "
    "docstrings say, their windows are rounds of the schedule. Rates, priorities and cores are the "
    f"dissertation's; {SECONDS:g} s are simulated, the time that the modules take to converge included."
)
PLAIN = "mbd"


def cell(slow: int | None, inversion: str = "none", **more: Any) -> Cell:
    """Return workload 5G_4 under MBD with a module, and with little input for a class, by its number."""
    low = {} if slow is None else {f"rate_{slow}": 500}
    settings = {"seconds": SECONDS, "parameters": low}
    return Cell("5G_low", "mbd", {**mbd(inversion), **more}, settings)


def bars(cells: Sequence[str], figures: str = "mean") -> Bars:
    """Return the picture: the classes' response times for each module."""
    unit = "mean" if figures == "mean" else "75th percentile of"
    return Bars(
        y=f"{unit} response time, ms",
        groups={name: {one: (name, f"{one}.{figures}") for one in FIVE} for name in cells},
    )


def corrected(modules: Sequence[str], published: str, level: str = "") -> tuple[Claim, ...]:
    """Return the claims that modules remove the inversion that MBD has without."""
    return tuple(
        Claim(
            f"{module.upper()} removes the inversion: what is left of the ratio",
            published,
            left_of_inversion(module, PLAIN, level),
            holds=at_most(0),
            partly=at_most(50),
            unit="%",
        )
        for module in modules
    )


def quickest(module: str, others: Sequence[str], updates: str, time: str) -> tuple[Claim, ...]:
    """Return the claims that a module takes the fewest updates and the least time of all."""
    return (
        Claim(
            f"{module.upper()} takes the fewest updates: over the fewest of the others",
            updates,
            against_least(module, others, "updates"),
            holds=at_most(1),
            partly=at_most(1.25),
            unit="times",
        ),
        Claim(
            f"{module.upper()} has its last update earliest: over the earliest of the others",
            time,
            against_least(module, others, "converged"),
            holds=at_most(1),
            unit="times",
        ),
    )


def dearest(module: str, others: Sequence[str], published: str) -> Claim:
    """Return the claim that a module costs the most response time."""
    return Claim(
        f"{module.upper()} has the highest weighted response time of the modules: over the next",
        published,
        against_most(module, others, "weighted"),
        holds=at_least(1),
        unit="times",
    )


def cheapest(module: str, others: Sequence[str], published: str) -> Claim:
    """Return the claim that a module costs the least response time."""
    return Claim(
        f"{module.upper()} has the lowest weighted response time of the modules: over the next",
        published,
        against_least(module, others, "weighted"),
        holds=at_most(1),
        partly=at_most(1.03),
        unit="times",
    )


def nearest(module: str, others: Sequence[str], published: str) -> Claim:
    """Return the claim that a module changes the weighted response time least."""
    return Claim(
        f"{module.upper()} comes closest to MBD without modules: how much nearer than the next, weighted",
        published,
        closest(module, others, PLAIN, "weighted"),
        holds=at_least(0),
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
        calibration=CALIBRATION + " `cascade` is a module of our own.",
        cells={PLAIN: cell(1), **{module: cell(1, module) for module in (*MODULES, "cascade")}},
        claims=(
            Claim(
                "without modules class 1 answers later than class 2",
                "higher (figure 84)",
                ratio(PLAIN, "class1.mean", PLAIN, "class2.mean"),
                holds=at_least(1),
                unit="times",
            ),
            *corrected(MODULES, "none of the modules has inversion at the mean (6.3.3.1)"),
            nearest("dvp", MODULES, "the closest (figure 89)"),
            cheapest("dvp", MODULES, "the lowest (6.3.3.1)"),
            dearest("dsp", MODULES, "the highest (figure 89)"),
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
                "there is no inversion at the mean",
                "none (figure 85)",
                figure(PLAIN, "inversion"),
                holds=at_most(0),
                partly=at_most(0.02),
            ),
            Claim(
                "at the 75th percentile class 2 answers later than class 3",
                "higher (figure 85)",
                ratio(PLAIN, "class2.p75", PLAIN, "class3.p75"),
                holds=at_least(1),
                partly=at_least(0.95),
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
                "without modules class 3 answers later than class 4",
                "higher (figure 86)",
                ratio(PLAIN, "class3.mean", PLAIN, "class4.mean"),
                holds=at_least(1),
                partly=at_least(0.95),
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
                "there is no inversion at the mean",
                "none (figure 87, 6.3.3)",
                figure(PLAIN, "inversion"),
                holds=at_most(0),
                partly=at_most(0.02),
            ),
            Claim(
                "class 4 answers about as late as class 5",
                "similar (figure 87)",
                ratio(PLAIN, "class4.mean", PLAIN, "class5.mean"),
                holds=between(0.85, 1),
                partly=between(0.75, 1.1),
                unit="times",
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
                "there is no inversion at the mean",
                "none (figure 88)",
                figure(PLAIN, "inversion"),
                holds=at_most(0),
            ),
            Claim(
                "class 5 answers later than with full input",
                "increases (figure 88)",
                ratio(PLAIN, "class5.mean", "full input"),
                holds=at_least(1),
                unit="times",
            ),
        ),
        picture=bars((PLAIN, "full input")),
    )
)
