"""Figures 5 to 9: AMoS with one, two and three requirements."""

from __future__ import annotations

from collections.abc import Callable

from mavstream_experiments.model import Band, Cell, Claim, Experiment, Table, at_least, at_most
from mavstream_experiments.papers.amos import PAPER
from mavstream_experiments.papers.amos.choices import (
    CALIBRATION,
    DELAY,
    LABELS,
    OUTPUT,
    PLAN_1,
    PLAN_2,
    PRINTED,
    QUEUE,
    SEEDS,
    SHARP,
    SINGLE,
    Value,
    adaptive,
    course,
    singles,
    to_best,
    to_mean,
)
from mavstream_experiments.pictures_model import Bars, Lines
from mavstream_experiments.registry import register

_ALL = (*SINGLE, PRINTED, SHARP)
_ON_PLAN_1 = f"{CALIBRATION} Plan 1, because only figure 9 is said to be of plan 2."
_OURS = "AMoS with the sharper learner, which is ours,"
_NAMES = {**LABELS, PRINTED: "AMoS", SHARP: "AMoS, sharp"}


def _both(
    text: str,
    published: str,
    value: Callable[[str], Value],
    holds: Band,
    partly: Band | None = None,
) -> tuple[Claim, Claim]:
    """Return a claim of AMoS as printed, and the same of the sharper learner."""
    return (
        Claim(f"AMoS {text}", published, value(PRINTED), holds, partly, unit="times"),
        Claim(f"{_OURS} {text}", published, value(SHARP), holds, partly, unit="times"),
    )


def _bars(figures: dict[str, str]) -> Bars:
    return Bars(
        "relative to the mean of the four",
        {label: {_NAMES[one]: to_mean(figure, one) for one in _ALL} for label, figure in figures.items()},
    )


def _cells(plan: str, **weights: float) -> dict[str, Cell]:
    return {**singles(plan), **adaptive(plan, **weights)}


register(
    Experiment(
        name="amos-figure-5",
        paper=PAPER,
        title="One requirement: short delays",
        about="Mean delay under four policies and under AMoS, which chooses between them for short delays.",
        calibration=_ON_PLAN_1,
        cells=_cells(PLAN_1, delay=1.0),
        claims=(
            *_both(
                "has a shorter delay than every single policy (ratio to the best)",
                "outperforms all individual algorithms (4.2, figure 5)",
                lambda one: to_best(DELAY, one),
                holds=at_most(1),
                partly=at_most(1.1),
            ),
            *_both(
                "has a shorter delay than the four have on average (ratio)",
                "better or at least equal most of the time (4.2)",
                lambda one: to_mean(DELAY, one),
                holds=at_most(1),
            ),
        ),
        picture=Lines("time, s", "mean delay, ms", course("delay", _ALL)),
        seeds=SEEDS,
    )
)
register(
    Experiment(
        name="amos-figure-6",
        paper=PAPER,
        title="One requirement: short queues",
        about="Tuples in queues under four policies and under AMoS, which chooses for short queues.",
        calibration=_ON_PLAN_1,
        cells=_cells(PLAN_1, queued_tuples=1.0),
        claims=(
            *_both(
                "has shorter queues than every single policy (ratio to the best)",
                "often outperforms any single algorithm (4.2, figure 6)",
                lambda one: to_best(QUEUE, one),
                holds=at_most(1),
                partly=at_most(1.1),
            ),
            *_both(
                "has shorter queues than the four have on average (ratio)",
                "better or at least equal most of the time (4.2)",
                lambda one: to_mean(QUEUE, one),
                holds=at_most(1),
            ),
        ),
        picture=Lines("time, s", "tuples in queues", course("queue", _ALL)),
        seeds=SEEDS,
    )
)
register(
    Experiment(
        name="amos-figure-7",
        paper=PAPER,
        title="Two requirements: 70 % delay, 30 % output rate",
        about="Mean delay and answers per second under four policies and under AMoS.",
        calibration=_ON_PLAN_1,
        cells=_cells(PLAN_1, delay=0.7, output_rate=0.3),
        claims=(
            *_both(
                "has a shorter delay than every single policy (ratio to the best)",
                "outperforms each single algorithm regarding delay (4.3, figure 7)",
                lambda one: to_best(DELAY, one),
                holds=at_most(1),
                partly=at_most(1.1),
            ),
            *_both(
                "has about the average output rate (ratio to the mean)",
                "about average regarding the output rate (4.3, figure 7)",
                lambda one: to_mean(OUTPUT, one),
                holds=Band(0.9, 1.1),
                partly=at_least(0.8),
            ),
        ),
        picture=_bars({"delay": DELAY, "output rate": OUTPUT}),
        seeds=SEEDS,
    )
)

# The runs of figure 7 under other names: figure 8 is held against them.
_BEFORE = {f"{name}, 70 % delay": cell for name, cell in adaptive(PLAN_1, delay=0.7, output_rate=0.3).items()}


def _raised(name: str) -> Value:
    def raised(table: Table) -> float:
        return table[name][OUTPUT] / table[f"{name}, 70 % delay"][OUTPUT]

    return raised


register(
    Experiment(
        name="amos-figure-8",
        paper=PAPER,
        title="Two requirements: 30 % delay, 70 % output rate",
        about="The same with the weights the other way round.",
        calibration=_ON_PLAN_1,
        cells={**_cells(PLAN_1, delay=0.3, output_rate=0.7), **_BEFORE},
        claims=(
            *_both(
                "still has a shorter delay than every single policy (ratio to the best)",
                "still does exceptionally well at minimizing delay (4.3, figure 8)",
                lambda one: to_best(DELAY, one),
                holds=at_most(1),
                partly=at_most(1.1),
            ),
            *_both(
                "has a higher output rate than with 30 % of the weight on it (ratio)",
                "improves significantly at raising the output rate (4.3, figure 8)",
                _raised,
                holds=at_least(1.05),
                partly=at_least(1),
            ),
        ),
        picture=_bars({"delay": DELAY, "output rate": OUTPUT}),
        seeds=SEEDS,
    )
)
register(
    Experiment(
        name="amos-figure-9",
        paper=PAPER,
        title="Three requirements of the same weight",
        about="Mean delay, tuples in queues and answers per second on the plan with two streams.",
        calibration=CALIBRATION,
        cells=_cells(PLAN_2, delay=1.0, queued_tuples=1.0, output_rate=1.0),
        claims=(
            *_both(
                "has a shorter delay than every single policy (ratio to the best)",
                "the biggest improvements on delay and memory (4.4, figure 9)",
                lambda one: to_best(DELAY, one),
                holds=at_most(1),
                partly=at_most(1.1),
            ),
            *_both(
                "has shorter queues than every single policy (ratio to the best)",
                "the biggest improvements on delay and memory (4.4, figure 9)",
                lambda one: to_best(QUEUE, one),
                holds=at_most(1),
                partly=at_most(1.1),
            ),
            *_both(
                "has a higher output rate than the four have on average (ratio)",
                "performs well under all three requirements (4.4, figure 9)",
                lambda one: to_mean(OUTPUT, one),
                holds=at_least(1),
            ),
        ),
        picture=_bars({"delay": DELAY, "tuples in queues": QUEUE, "output rate": OUTPUT}),
        seeds=SEEDS,
    )
)
