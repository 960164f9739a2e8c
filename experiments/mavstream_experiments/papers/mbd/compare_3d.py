"""Compare_3D_6, figures 30 to 39: three classes of the same load on six cores."""

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
from mavstream_experiments.papers.mbd.values import highest_of, least_over, metric, ratio
from mavstream_experiments.registry import register

_EVERY = (*(f"{name}.mean" for name in THREE), "weighted")

register(
    Experiment(
        name="mbd-compare-3d",
        paper=PAPER,
        title="Compare_3D_6: three classes of the same load on six cores",
        about=(
            "Response times of the three classes of workload 3D_6 under MBD without modules and seven others."
        ),
        calibration=SIX_CORES,
        cells=cells("3D_6", overloaded=("pct",)),
        claims=(
            *about_mbd("none (figure 38)", "MBD does not starve class 3 (figure 36)"),
            *about_mprr("10, the highest (figure 39)", "MBD is the lowest (6.3.1.2)"),
            about_round_robin("MRR is better (figures 32, 33)"),
            inverting(("mrr", "morr", "mol", "pct", "pct_s"), "these five do (figure 38)"),
            Claim(
                "ML has no priority inversion at the mean (inversion ratio)",
                "none (figure 38)",
                metric("ml", "inversion"),
                holds=at_most(0),
                no_effect=True,
            ),
            Claim(
                "PCT is overloaded with three threads on six cores (90th percentile of class 1)",
                "the 90th percentile reaches 1 s (figure 30)",
                metric("pct", "class1.p90"),
                holds=between(700, 1300),
                partly=at_least(200),
                unit="ms",
            ),
            Claim(
                "PCT_S, with six threads, is not overloaded (highest mean of a class)",
                "below 15 ms (figure 31)",
                highest_of("pct_s", THREE),
                holds=at_most(15),
                unit="ms",
            ),
            Claim(
                "no class is slow under MRR (highest mean of a class)",
                "lower than 5 ms (figure 33)",
                highest_of("mrr", THREE),
                holds=at_most(5),
                unit="ms",
            ),
            Claim(
                "no class is slow under MORR (highest mean of a class)",
                "lower than 7 ms (figure 32)",
                highest_of("morr", THREE),
                holds=at_most(7),
                unit="ms",
            ),
            Claim(
                "response times of class 3 vary widely under ML (95th percentile to median)",
                "above 30 ms over slightly above 6 ms (figure 35)",
                ratio("ml", "class3.p95", "ml", "class3.p50"),
                holds=between(4, 6.5),
                partly=at_least(2),
                unit="times",
            ),
            Claim(
                "classes hardly differ under MOL (response time, class 3 to class 1)",
                "very close response times (figure 34)",
                metric("mol", "starvation"),
                holds=between(0.8, 1.25),
                partly=between(0.8, 2),
                no_effect=True,
            ),
            Claim(
                "MPRR starves class 3 (response time, class 3 to class 1)",
                "10 (figure 39)",
                metric("mprr", "starvation"),
                holds=between(7.5, 12.5),
                partly=at_least(3),
            ),
            Claim(
                "of MBD, ML and MPRR, MBD is the fastest in every class and weighted (others to MBD, least)",
                "lowest of MBD, ML and MPRR (6.3.1.2)",
                least_over(("ml", "mprr"), "mbd", _EVERY),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=boxes(THREE),
    )
)
