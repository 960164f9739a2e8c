"""Compare_5G, figures 21 to 29: five classes, class 3 the heaviest, on four cores."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, at_least, between
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import against_least, figure, over_others, ratio
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
                "MBD gives class 1 the lowest response time of all: its mean over the least of the others",
                "the lowest (figure 26)",
                against_least("mbd", BASELINES, "class1.mean"),
                holds=between(0, 1),
                partly=between(0, 1.25),
                unit="times",
            ),
            Claim(
                "under PCT the heaviest class, class 3, answers last",
                "the highest (figure 21)",
                over_others("pct", "class3", FIVE),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "PCT_S is the same as PCT: there are more classes than cores",
                "identical (6.3.1.1)",
                ratio("pct_s", "weighted", "pct"),
                holds=between(1, 1),
                unit="times",
            ),
            Claim(
                "ML answers earlier than MOL",
                "ML is better (figures 24, 25)",
                ratio("mol", "mean", "ml"),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "classes hardly matter to MOL: class 5 over class 1",
                "very little to no effect of the priorities (figure 24)",
                figure("mol", "starvation"),
                holds=between(0.8, 1.25),
                partly=between(0.8, 2),
            ),
        ),
        picture=boxes(FIVE),
    )
)
