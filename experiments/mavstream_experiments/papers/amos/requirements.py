"""Figures 5 to 9: AMoS with one, two and three requirements."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from mavstream_experiments.bands import Band, above, at_least, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Table, Value
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
    adaptive,
    over_run,
    singles,
    to_best,
    to_mean,
)
from mavstream_experiments.pictures_model import Bars, Lines
from mavstream_experiments.registry import register

_ALL = (*SINGLE, PRINTED, SHARP)
_ON_PLAN_1 = f"{CALIBRATION} Plan 1, because only figure 9 is said to be of plan 2."
_OURS = "AMoS with the sharper learner (ours)"
_NAMES = {**LABELS, PRINTED: "AMoS", SHARP: "AMoS, sharp"}


def _both(
    text: str,
    published: str,
    value: Callable[[str], Value],
    holds: Band,
    partly: Band | None = None,
    unit: str = "times",
    needs: str = "",
) -> tuple[Claim, Claim]:
    """Return a claim about AMoS with the printed learner, and the same about the sharper one."""
    return (
        Claim(f"AMoS {text}", published, value(PRINTED), holds, partly, unit, needs=needs),
        Claim(f"{_OURS} {text}", published, value(SHARP), holds, partly, unit, needs=needs),
    )


def _bars(metrics: dict[str, str]) -> Bars:
    return Bars(
        "relative to the mean of the four",
        {label: {_NAMES[one]: to_mean(metric, one) for one in _ALL} for label, metric in metrics.items()},
    )


def _position(policy: str) -> Value:
    """Return where a policy's output rate lies between the lowest (0) and the highest (1) of the four.

    The output rate is close to what the plan can give under any policy, so that ratios are close to 1.
    """

    def position(table: Table) -> float:
        rates = [table[one][OUTPUT] for one in SINGLE]
        span = max(rates) - min(rates)
        return (table[policy][OUTPUT] - min(rates)) / span if span else nan

    return position


def _cells(plan: str, **weights: float) -> dict[str, Cell]:
    return {**singles(plan), **adaptive(plan, **weights)}


register(
    Experiment(
        name="amos-figure-5",
        paper=PAPER,
        title="One requirement: short delays",
        about="Mean delay under four policies and AMoS, which chooses among them for short delays.",
        calibration=_ON_PLAN_1,
        cells=_cells(PLAN_1, delay=1.0),
        claims=(
            *_both(
                "has a shorter delay than every single policy (AMoS to the best)",
                "outperforms all individual algorithms (4.2, figure 5)",
                lambda one: to_best(DELAY, one),
                holds=below(1),
            ),
            *_both(
                "has a shorter delay than the mean of the four (AMoS to the mean)",
                "better or at least equal most of the time (4.2)",
                lambda one: to_mean(DELAY, one),
                holds=below(1),
            ),
        ),
        picture=Lines("time, s", "mean delay, ms", over_run("delay", _ALL)),
        seeds=SEEDS,
    )
)
register(
    Experiment(
        name="amos-figure-6",
        paper=PAPER,
        title="One requirement: short queues",
        about="Tuples in queues under four policies and AMoS, which chooses among them for short queues.",
        calibration=_ON_PLAN_1,
        cells=_cells(PLAN_1, queued_tuples=1.0),
        claims=(
            *_both(
                "has shorter queues than every single policy (AMoS to the best)",
                "often outperforms any single algorithm (4.2, figure 6)",
                lambda one: to_best(QUEUE, one),
                holds=below(1),
            ),
            *_both(
                "has shorter queues than the mean of the four (AMoS to the mean)",
                "better or at least equal most of the time (4.2)",
                lambda one: to_mean(QUEUE, one),
                holds=below(1),
            ),
        ),
        picture=Lines("time, s", "tuples in queues", over_run("queue", _ALL)),
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
                "has a shorter delay than every single policy (AMoS to the best)",
                "outperforms each single algorithm regarding delay (4.3, figure 7)",
                lambda one: to_best(DELAY, one),
                holds=below(1),
            ),
            *_both(
                "has about the average output rate (0: the lowest of the four, 1: the highest)",
                "about average regarding the output rate (4.3, figure 7)",
                _position,
                holds=between(0.25, 0.75),
                unit="",
                needs="policies with different output rates",
            ),
        ),
        picture=_bars({"delay": DELAY, "output rate": OUTPUT}),
        seeds=SEEDS,
    )
)

# The runs of figure 7, which figure 8 is compared with.
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
        about="The same with the weights exchanged.",
        calibration=_ON_PLAN_1,
        cells={**_cells(PLAN_1, delay=0.3, output_rate=0.7), **_BEFORE},
        claims=(
            *_both(
                "still has a shorter delay than every single policy (AMoS to the best)",
                "still does exceptionally well at minimizing delay (4.3, figure 8)",
                lambda one: to_best(DELAY, one),
                holds=below(1),
            ),
            *_both(
                "has a higher output rate than with 30 % of the weight on it (70 % to 30 %)",
                "improves significantly at raising the output rate (4.3, figure 8)",
                _raised,
                holds=at_least(1.05),
                partly=above(1),
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
                "has a shorter delay than every single policy (AMoS to the best)",
                "the biggest improvements on delay and memory (4.4, figure 9)",
                lambda one: to_best(DELAY, one),
                holds=below(1),
            ),
            *_both(
                "has shorter queues than every single policy (AMoS to the best)",
                "the biggest improvements on delay and memory (4.4, figure 9)",
                lambda one: to_best(QUEUE, one),
                holds=below(1),
            ),
            *_both(
                "has a higher output rate than the mean of the four (AMoS to the mean)",
                "performs well under all three requirements (4.4, figure 9)",
                lambda one: to_mean(OUTPUT, one),
                holds=above(1),
            ),
        ),
        picture=_bars({"delay": DELAY, "tuples in queues": QUEUE, "output rate": OUTPUT}),
        seeds=SEEDS,
    )
)
