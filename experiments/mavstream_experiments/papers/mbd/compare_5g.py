"""Compare_5G, figures 21 to 29: five classes, class 3 the heaviest, on four cores."""

from __future__ import annotations

from mavstream_experiments.bands import above, below, between
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import (
    BASELINES,
    FIVE,
    LONGER,
    SHORT,
    about_mbd,
    about_mprr,
    about_round_robin,
    boxes,
    cells,
    inverting,
)
from mavstream_experiments.papers.mbd.values import metric, over_least, over_others, ratio
from mavstream_experiments.registry import register

register(
    Experiment(
        name="mbd-compare-5g",
        paper=PAPER,
        title="Compare_5G: eight schedulers on four cores",
        about=(
            "Response times of the five classes of workload 5G_4 under MBD without modules and seven others."
        ),
        calibration=(
            "Fitted: per-tuple costs (utilisation 0.75), a set-up of 16 us per call (from Scale_CQs and "
            "Scale_Overld), which queries a class has of each kind. Classes, priorities, the rate of "
            f"1200 tuples/s and the cores are the dissertation's; {SHORT:g} s are simulated, "
            f"{LONGER:g} s under MPRR, whose queues settle slowly."
        ),
        cells=cells("5G_4"),
        claims=(
            *about_mbd("none at any level (figure 28)", "slightly more for class 5 (figure 26)"),
            *about_mprr("higher than MBD's (figure 29)", "MBD has lower response times (6.3.1.1)"),
            about_round_robin("MRR is better (figures 22, 23)"),
            inverting(("mrr", "morr", "ml", "mol", "pct"), "all but MBD and MPRR (figure 28)"),
            Claim(
                "class 1 is the fastest under MBD (to the fastest other scheduler)",
                "the lowest (figure 26)",
                over_least("mbd", BASELINES, "class1.mean"),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "the heaviest class, class 3, is the slowest under PCT (to the slowest other)",
                "the highest (figure 21)",
                over_others("pct", "class3", FIVE),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "ML is faster than MOL (mean response time, MOL to ML)",
                "ML is better (figures 24, 25)",
                ratio("mol", "mean", "ml"),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "classes hardly differ under MOL (response time, class 5 to class 1)",
                "very little to no effect of the priorities (figure 24)",
                metric("mol", "starvation"),
                holds=between(0.8, 1.25),
                partly=between(0.8, 2),
                no_effect=True,
            ),
        ),
        picture=boxes(FIVE),
    )
)
