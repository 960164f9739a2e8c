"""Figure 6.1: latency over the data rate."""

from __future__ import annotations

from mavstream_experiments.bands import above, below, between
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import (
    CALIBRATION,
    LATENCY,
    PATH,
    RATES,
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

_path_to_segment = average(LATENCY, PATH, SEGMENT)

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
                "path capacity is faster than segments (reduction, mean over the rates)",
                "13 % (6.2, figure 6.1)",
                lambda table: 100 * (1 - _path_to_segment(table)),
                holds=between(8, 18),
                partly=above(0),
                unit="%",
                required=True,
                fitted=True,
            ),
            Claim(
                "path capacity is the fastest at every rate (to the fastest other, largest)",
                "performance is better than that of the other strategies (6.2, figure 6.1)",
                largest(LATENCY, PATH, SIMPLIFIED, SEGMENT, RR),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "simplified segments are faster than segments at every rate (ratio, largest)",
                "simplified segment is better than segment (6.2, figure 6.1)",
                largest(LATENCY, SIMPLIFIED, SEGMENT),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "latency is proportional to the rate (900 to 100 tuples/s, least over the policies)",
                "waiting time in the buffer 'is proportional to the data rate' (6.2)",
                least_step(LATENCY, (RATES[0], RATES[-1])),
                holds=between(4.5, 18),
                unit="times",
            ),
        ),
        picture=Lines("tuples/s on each stream", "mean latency, s", lines(LATENCY, 1e-3)),
        quick=(name(PATH, 100), name(SEGMENT, 100)),
    )
)
