"""Scheduling sources, figure 119: one or two cores for sources, and the order on two."""

from __future__ import annotations

from mavstream_experiments.bands import above, between
from mavstream_experiments.model import Cell, Claim, Experiment
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.scale_cqs import CELLS
from mavstream_experiments.papers.mbd.values import least_over, ratio
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

# The same work on seven cores as on eight.
_SEVEN = {"seconds": 0.5, "cores": 7, "source_cores": 2, "utilisation": 0.75 * 8 / 7}
_TWO = ("7+2 MRR", "7+2 MBD")

register(
    Experiment(
        name="mbd-source-cores",
        paper=PAPER,
        title="Scheduling sources: cores for sources and for operators",
        about=(
            "Workload 5S_8 with one core for sources and eight for operators, or two and seven; the two "
            "serve sources round robin or in slots by class priority."
        ),
        calibration=(
            "Costs as in Scale_CQs. The text's 4800 tuples/s are read as the 1200 of table 9. A source "
            "costs 3.5 us a tuple and 6 us a call (fitted); its slots follow the most important class "
            "that reads it."
        ),
        cells={
            "8+1": CELLS["8"],
            "7+2 MRR": Cell("5S_8", "mbd", mbd(), _SEVEN),
            "7+2 MBD": Cell("5S_8", "mbd", mbd(), {**_SEVEN, "source_order": "broadcast_disk"}),
        },
        claims=(
            Claim(
                "the order on two source cores makes no difference (weighted response time, MBD to MRR)",
                "no significant difference (figure 119)",
                ratio("7+2 MBD", "weighted", "7+2 MRR"),
                holds=between(0.95, 1.05),
                partly=between(0.9, 1.1),
                unit="times",
                no_effect=True,
            ),
            Claim(
                "8+1 has the lowest weighted response time (the next to 8+1)",
                "the lowest (figure 119)",
                least_over(_TWO, "8+1", ("weighted",)),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "8+1 is the fastest in every class (others to 8+1, least)",
                "the lowest (figure 119)",
                least_over(_TWO, "8+1", [f"{name}.mean" for name in FIVE]),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=Bars(
            y="mean response time, ms",
            groups={
                cell: {name: (cell, f"{name}.mean") for name in FIVE}
                for cell in ("8+1", "7+2 MRR", "7+2 MBD")
            },
        ),
    )
)
