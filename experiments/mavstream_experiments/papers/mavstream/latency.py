"""Figure 6.1: latency over the data rate."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, at_least, at_most, between
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import (
    CALIBRATION,
    LATENCY,
    PATH,
    RR,
    SEGMENT,
    SIMPLIFIED,
    average,
    cells,
    largest,
    least_step,
    lines,
    name,
)
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

_share = average(LATENCY, PATH, SEGMENT)

register(
    Experiment(
        name="mavstream-figure-6.1",
        paper=PAPER,
        title="Latency over the data rate",
        about="Mean latency of one query with six operators under four policies, at 100 to 900 tuples/s.",
        calibration=CALIBRATION,
        cells=cells(),
        claims=(
            Claim(
                "path capacity is faster than segments, on average over the rates, by",
                "13 % (6.2, figure 6.1)",
                lambda table: 100 * (1 - _share(table)),
                holds=between(8, 18),
                partly=at_least(0),
                unit="%",
                required=True,
            ),
            Claim(
                "path capacity is the fastest at every rate (largest ratio to the best other)",
                "performance is better than that of the other strategies (6.2, figure 6.1)",
                largest(LATENCY, PATH, SIMPLIFIED, SEGMENT, RR),
                holds=at_most(1),
                unit="times",
            ),
            Claim(
                "simplified segments are faster than segments at every rate (largest ratio)",
                "simplified segment is better than segment (6.2, figure 6.1)",
                largest(LATENCY, SIMPLIFIED, SEGMENT),
                holds=at_most(1),
                partly=at_most(1.05),
                unit="times",
            ),
            Claim(
                "latency rises with the rate under every policy (least ratio of neighbours)",
                "as the data rate increases the latency increases (6.2, figure 6.1)",
                least_step(LATENCY),
                holds=at_least(1),
                unit="times",
            ),
        ),
        picture=Lines("tuples/s on each stream", "mean latency, s", lines(LATENCY, 1e-3)),
        quick=(name(PATH, 100), name(SEGMENT, 100)),
    )
)
