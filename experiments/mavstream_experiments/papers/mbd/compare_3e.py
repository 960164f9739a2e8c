"""Compare_3E_6, figures 40 to 49: classes of lower priority have more load."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most, between
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import (
    SIX_CORES,
    THREE,
    about_mbd,
    about_mprr,
    about_round_robin,
    boxes,
    cells,
    inverting,
)
from mavstream_experiments.papers.mbd.values import highest_of, inverted, metric, over_others, ratio
from mavstream_experiments.registry import register

register(
    Experiment(
        name="mbd-compare-3e",
        paper=PAPER,
        title="Compare_3E_6: class 1 the lightest, on six cores",
        about=(
            "Response times of the three classes of workload 3E_6 under MBD without modules and seven others."
        ),
        calibration=SIX_CORES,
        cells=cells("3E_6", overloaded=("pct", "pct_s")),
        claims=(
            *about_mbd("none (figure 48)", "3.6 (figure 49)"),
            *about_mprr("MBD's is low (figure 49)", "class 1 much higher than under MBD (figure 47)"),
            about_round_robin("MRR is better (figures 42, 43)"),
            inverting(("mrr", "morr", "ml"), "these three do (figure 48)"),
            Claim(
                "PCT, PCT_S and MOL have no priority inversion at the mean (number of them that do)",
                "none of the rest (figure 48)",
                inverted(("pct", "pct_s", "mol")),
                holds=at_most(0),
                no_effect=True,
            ),
            Claim(
                "MBD has the published starvation ratio",
                "3.6 (figure 49)",
                metric("mbd", "starvation"),
                holds=between(2.9, 4.3),
                partly=between(2, 5.5),
            ),
            Claim(
                "response times follow the load under PCT (mean of class 3)",
                "close to 1 s (figure 40)",
                metric("pct", "class3.mean"),
                holds=between(700, 1300),
                partly=between(300, 2000),
                unit="ms",
            ),
            Claim(
                "PCT_S starves class 3 (response time, class 3 to class 1)",
                "123 (figure 49)",
                metric("pct_s", "starvation"),
                holds=between(80, 170),
                partly=at_least(20),
            ),
            Claim(
                "class 3 is the slowest under PCT_S (to the slowest other)",
                "the highest (figure 41)",
                over_others("pct_s", "class3", THREE),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "no class is slow under MRR (highest mean of a class)",
                "lower than 3 ms (figure 43)",
                highest_of("mrr", THREE),
                holds=at_most(3),
                unit="ms",
            ),
            Claim(
                "no class is slow under MORR (highest mean of a class)",
                "lower than 7 ms (figure 42)",
                highest_of("morr", THREE),
                holds=at_most(7),
                unit="ms",
            ),
            Claim(
                "class 1 is much slower under MPRR than under MBD (MPRR to MBD)",
                "much higher (figure 47)",
                ratio("mprr", "class1.mean", "mbd"),
                holds=at_least(1.5),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "classes hardly differ under MOL (response time, class 3 to class 1)",
                "no preference for class 1 (figure 44)",
                metric("mol", "starvation"),
                holds=between(0.8, 1.25),
                partly=between(0.8, 2),
                no_effect=True,
            ),
            Claim(
                "class 1 is faster under ML than under MOL (MOL to ML)",
                "lower than under MOL (figure 45)",
                ratio("mol", "class1.mean", "ml"),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=boxes(THREE),
    )
)
