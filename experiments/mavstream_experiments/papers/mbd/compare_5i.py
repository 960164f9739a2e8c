"""Compare_5I, figures 60 to 69: the same queries in five classes, class 3 slightly the heaviest."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, Table, at_least, at_most, between
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import figure, over_others, ratio
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
from mavstream_experiments.registry import register


def _class_1_above(table: Table) -> float:
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
                "the starvation ratio of MBD",
                "6.2 (figure 69)",
                figure("mbd", "starvation"),
                holds=between(4.6, 7.8),
                partly=between(2, 10),
            ),
            Claim(
                "under PCT the heaviest class, class 3, answers last",
                "much higher than classes 4 and 5 (figure 60)",
                over_others("pct", "class3", FIVE),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "and in the mean after",
                "450 ms (figure 60)",
                figure("pct", "class3.mean"),
                holds=between(300, 600),
                partly=between(100, 1500),
                unit="ms",
            ),
            Claim(
                "under PCT class 1 answers later than classes 2 and 4",
                "higher (figure 60)",
                _class_1_above,
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "PCT_S changes nothing for class 3: its mean over that under PCT",
                "does not change (figure 61)",
                ratio("pct_s", "class3.mean", "pct"),
                holds=between(0.9, 1.1),
                unit="times",
            ),
            Claim(
                "but class 1, which has two threads, answers earlier",
                "lower (figure 61)",
                ratio("pct_s", "class1.mean", "pct"),
                holds=at_most(0.9),
                partly=at_most(1),
                unit="times",
            ),
            Claim(
                "PCT has the highest inversion ratio: its size",
                "60.9 (figure 69)",
                figure("pct", "inversion"),
                holds=between(45, 80),
                partly=at_least(5),
            ),
            Claim(
                "PCT_S has the highest starvation ratio: its size",
                "48 (figure 69)",
                figure("pct_s", "starvation"),
                holds=between(36, 60),
                partly=at_least(10),
            ),
            Claim(
                "MPRR starves class 5: its mean",
                "classes 4 and 5 above 30 ms, class 5 close to 90 ms (figure 67)",
                figure("mprr", "class5.mean"),
                holds=between(30, 110),
                partly=at_least(15),
                unit="ms",
            ),
        ),
        picture=boxes(FIVE),
    )
)
