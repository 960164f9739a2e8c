"""Figure 2: no single policy has both the shortest queues and the shortest delay."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, below
from mavstream_experiments.model import Claim, Experiment, Table
from mavstream_experiments.papers.amos import PAPER
from mavstream_experiments.papers.amos.choices import (
    CALIBRATION,
    CHAIN,
    DELAY,
    FED_S,
    FIFO,
    LABELS,
    MTIQ,
    PLAN_2,
    QUEUE,
    RR,
    SEEDS,
    SINGLE,
    STEP_S,
    singles,
    to_best,
)
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_END = f"delay {FED_S - STEP_S}"


def _queues(table: Table) -> float:
    return max(table[policy][QUEUE] for policy in (MTIQ, CHAIN)) / min(
        table[policy][QUEUE] for policy in (RR, FIFO)
    )


def _delays(table: Table) -> float:
    return min(table[policy][_END] for policy in (MTIQ, CHAIN)) / max(
        table[policy][_END] for policy in (RR, FIFO)
    )


def _best_of_both(table: Table) -> float:
    return min(max(to_best(metric, one)(table) for metric in (QUEUE, DELAY)) for one in SINGLE)


register(
    Experiment(
        name="amos-figure-2",
        paper=PAPER,
        title="Four policies on the plan with two streams",
        about="Mean number of tuples in queues and mean delay under RR, FIFO, MTIQ and Chain.",
        calibration=CALIBRATION,
        cells=singles(PLAN_2),
        claims=(
            Claim(
                "MTIQ and Chain have the shortest queues (longer of both to shorter of the others)",
                "Chain and MTIQ perform the best (2.3, figure 2)",
                _queues,
                holds=below(1),
                unit="times",
            ),
            Claim(
                "Chain has the shortest queues (Chain to the shortest other)",
                "Chain and MTIQ perform the best (2.3, figure 2)",
                to_best(QUEUE, CHAIN, (RR, FIFO, MTIQ)),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "MTIQ and Chain have the longest delays at the end (shorter of both to longer of the others)",
                "the two worst near the end (2.3, figure 2)",
                _delays,
                holds=above(1),
                unit="times",
            ),
            Claim(
                "FIFO has the shortest delay (FIFO to the shortest other)",
                "does quite well at the result latency (2.3, figure 2)",
                to_best(DELAY, FIFO, (RR, MTIQ, CHAIN)),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "no policy is best in both (to the best in the worse of both, least over the policies)",
                "no one algorithm is outstanding in both (2.3)",
                _best_of_both,
                holds=at_least(1.05),
                unit="times",
            ),
        ),
        picture=Bars(
            "relative to the best",
            {
                label: {LABELS[policy]: to_best(metric, policy) for policy in SINGLE}
                for label, metric in (("tuples in queues", QUEUE), ("delay", DELAY))
            },
        ),
        seeds=SEEDS,
    )
)
