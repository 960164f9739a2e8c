"""Compare_3F_6, figures 50 to 59: workload 3E_6 with classes 1 and 3 exchanged."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, Table, at_least, at_most, between
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import Value, figure, over_others, ratio
from mavstream_experiments.papers.mbd.compare_3e import CELLS as OF_3E
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
from mavstream_experiments.registry import register

_ALIKE = ("mrr", "morr")


def _range(cell: str, name: str, other: str) -> Value:
    """Return how wide a class's response times lie, from the 10th to the 90th percentile, over another's."""

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
        cells={
            **cells("3F_6", overloaded=("pct", "pct_s")),
            **{f"{policy} on 3E_6": OF_3E[policy] for policy in _ALIKE},
        },
        claims=(
            *about_mbd("none (figure 58)", "less than 1.5 (figure 59)"),
            *about_mprr("4.3, the highest (figure 59)", "classes 2 and 3 very high (figure 57)"),
            about_round_robin("as on 3E_6 (figures 52, 53)"),
            inverting(("mrr", "morr", "ml", "mol", "pct", "pct_s"), "all but MBD and MPRR (figure 58)"),
            Claim(
                "the starvation ratio of MBD",
                "less than 1.5 (figure 59)",
                figure("mbd", "starvation"),
                holds=between(1, 1.5),
                partly=between(1, 2),
            ),
            Claim(
                "the starvation ratio of MPRR",
                "4.3 (figure 59)",
                figure("mprr", "starvation"),
                holds=between(3.4, 5.2),
                partly=between(2, 8),
            ),
            Claim(
                "PCT_S has the highest inversion ratio: its size",
                "63.5 (figure 59)",
                figure("pct_s", "inversion"),
                holds=between(45, 85),
                partly=at_least(10),
            ),
            Claim(
                "under PCT class 1 is overloaded: its mean",
                "close to 1 s (figure 50)",
                figure("pct", "class1.mean"),
                holds=between(700, 1300),
                partly=between(300, 2000),
                unit="ms",
            ),
            Claim(
                "under PCT_S the mean of class 1",
                "below half a second (figure 51)",
                figure("pct_s", "class1.mean"),
                holds=at_most(500),
                unit="ms",
            ),
            Claim(
                "and it is much higher than those of classes 2 and 3",
                "significantly higher (figure 51)",
                over_others("pct_s", "class1", THREE),
                holds=at_least(2),
                partly=at_least(1),
                unit="times",
            ),
            *(
                Claim(
                    f"{policy} does the same as on workload 3E_6: the mean over all answers",
                    "identical but for the names of the classes (figures 52, 53)",
                    ratio(policy, "mean", f"{policy} on 3E_6"),
                    holds=between(0.95, 1.05),
                    unit="times",
                )
                for policy in _ALIKE
            ),
            Claim(
                "under ML response times of class 1 vary less than those of class 3",
                "less (figure 55)",
                _range("ml", "class1", "class3"),
                holds=at_most(1),
                unit="times",
            ),
        ),
        picture=boxes(THREE),
    )
)
