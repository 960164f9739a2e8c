"""Compare_3F_6, figures 50 to 59: workload 3E_6 with classes 1 and 3 exchanged."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most, below, between
from mavstream_experiments.model import Claim, Experiment, Table, Value
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
from mavstream_experiments.papers.mbd.values import metric, over_others
from mavstream_experiments.registry import register


def _range(cell: str, name: str, other: str) -> Value:
    """Return the range of a class's response times (90th less 10th percentile) divided by another's."""

    def width(table: Table, one: str) -> float:
        return table[cell][f"{one}.p90"] - table[cell][f"{one}.p10"]

    return lambda table: width(table, name) / width(table, other)


register(
    Experiment(
        name="mbd-compare-3f",
        paper=PAPER,
        title="Compare_3F_6: class 1 the heaviest, on six cores",
        about=(
            "Response times of the three classes of workload 3F_6 under MBD without modules and seven others."
        ),
        calibration=SIX_CORES,
        cells=cells("3F_6", overloaded=("pct", "pct_s")),
        claims=(
            *about_mbd("none (figure 58)", "less than 1.5 (figure 59)"),
            *about_mprr("4.3, the highest (figure 59)", "classes 2 and 3 very high (figure 57)"),
            about_round_robin("as on 3E_6 (figures 52, 53)"),
            inverting(("mrr", "morr", "ml", "mol", "pct", "pct_s"), "all but MBD and MPRR (figure 58)"),
            Claim(
                "MBD has the published starvation ratio",
                "less than 1.5 (figure 59)",
                metric("mbd", "starvation"),
                holds=between(1, 1.5),
                partly=between(1, 2),
                no_effect=True,
            ),
            Claim(
                "MPRR has the published starvation ratio",
                "4.3 (figure 59)",
                metric("mprr", "starvation"),
                holds=between(3.4, 5.2),
                partly=between(2, 8),
            ),
            Claim(
                "PCT_S has the published inversion ratio",
                "63.5 (figure 59)",
                metric("pct_s", "inversion"),
                holds=between(45, 85),
                partly=at_least(10),
            ),
            Claim(
                "class 1 is overloaded under PCT (its mean)",
                "close to 1 s (figure 50)",
                metric("pct", "class1.mean"),
                holds=between(700, 1300),
                partly=between(300, 2000),
                unit="ms",
            ),
            Claim(
                "class 1 is less overloaded under PCT_S (its mean)",
                "below half a second (figure 51)",
                metric("pct_s", "class1.mean"),
                holds=at_most(500),
                unit="ms",
            ),
            Claim(
                "class 1 is much slower than classes 2 and 3 under PCT_S (to the slower of them)",
                "significantly higher (figure 51)",
                over_others("pct_s", "class1", THREE),
                holds=at_least(2),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "response times of class 1 vary less than those of class 3 under ML (90th less 10th "
                "percentile, class 1 to class 3)",
                "less (figure 55)",
                _range("ml", "class1", "class3"),
                holds=below(1),
                unit="times",
            ),
        ),
        picture=boxes(THREE),
    )
)
