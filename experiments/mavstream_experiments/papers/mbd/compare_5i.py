"""Compare_5I, figures 60 to 69: the same queries in five classes, class 3 slightly the heaviest."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most, below, between
from mavstream_experiments.model import Claim, Experiment, Table
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import (
    FIVE,
    SIX_CORES,
    about_mbd,
    about_mprr,
    about_round_robin,
    boxes,
    cells,
    inverting,
)
from mavstream_experiments.papers.mbd.values import metric, over_others, ratio
from mavstream_experiments.registry import register


def _class_1_to_2_and_4(table: Table) -> float:
    of_pct = table["pct"]
    return of_pct["class1.mean"] / max(of_pct["class2.mean"], of_pct["class4.mean"])


register(
    Experiment(
        name="mbd-compare-5i",
        paper=PAPER,
        title="Compare_5I: five classes on six cores",
        about="Response times of the five classes of workload 5I under MBD without modules and seven others.",
        calibration=SIX_CORES + " That class 1 has a join more than class 2 is taken from figure 60.",
        cells=cells("5I", overloaded=("pct", "pct_s")),
        claims=(
            *about_mbd("none (figure 68)", "6.2 (figure 69)"),
            *about_mprr("MBD's is lower (figure 69)", "classes 4 and 5 are starved (figure 67)"),
            about_round_robin("both are low (figures 62, 63)"),
            inverting(("mrr", "morr", "ml", "mol", "pct", "pct_s"), "all but MBD and MPRR (figure 68)"),
            Claim(
                "MBD has the published starvation ratio",
                "6.2 (figure 69)",
                metric("mbd", "starvation"),
                holds=between(4.6, 7.8),
                partly=between(2, 10),
            ),
            Claim(
                "the heaviest class, class 3, is the slowest under PCT (to the slowest other)",
                "much higher than classes 4 and 5 (figure 60)",
                over_others("pct", "class3", FIVE),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "class 3 has the published response time under PCT (its mean)",
                "450 ms (figure 60)",
                metric("pct", "class3.mean"),
                holds=between(300, 600),
                partly=between(100, 1500),
                unit="ms",
            ),
            Claim(
                "class 1 is slower than classes 2 and 4 under PCT (to the slower of them)",
                "higher (figure 60)",
                _class_1_to_2_and_4,
                holds=above(1),
                unit="times",
                fitted=True,
            ),
            Claim(
                "class 1, which gets a second thread, is faster under PCT_S than under PCT (PCT_S to PCT)",
                "lower (figure 61)",
                ratio("pct_s", "class1.mean", "pct"),
                holds=at_most(0.9),
                partly=below(1),
                unit="times",
            ),
            Claim(
                "PCT has the published inversion ratio",
                "60.9 (figure 69)",
                metric("pct", "inversion"),
                holds=between(45, 80),
                partly=at_least(5),
            ),
            Claim(
                "PCT_S has the published starvation ratio",
                "48 (figure 69)",
                metric("pct_s", "starvation"),
                holds=between(36, 60),
                partly=at_least(10),
            ),
            Claim(
                "MPRR starves class 5 (its mean)",
                "classes 4 and 5 above 30 ms, class 5 close to 90 ms (figure 67)",
                metric("mprr", "class5.mean"),
                holds=between(30, 110),
                partly=at_least(15),
                unit="ms",
            ),
        ),
        picture=boxes(FIVE),
    )
)
