"""Figure 6.2: most memory over the data rate."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, at_least, at_most, between
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import (
    CALIBRATION,
    MEMORY,
    PATH,
    RR,
    SEGMENT,
    SIMPLIFIED,
    average,
    cells,
    largest,
    least_step,
    lines,
)
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

register(
    Experiment(
        name="mavstream-figure-6.2",
        paper=PAPER,
        title="Most memory over the data rate",
        about="The most bytes that waited in all queues, looked at every second, under four policies.",
        calibration=CALIBRATION,
        cells=cells(),
        claims=(
            Claim(
                "segments take the least memory (ratio to the best other, mean over the rates)",
                "segment is better than the other strategies (6.3, figure 6.2)",
                average(MEMORY, SEGMENT, PATH, SIMPLIFIED, RR),
                holds=at_most(1),
                unit="times",
                required=True,
            ),
            Claim(
                "and at every rate (largest ratio to the best other)",
                "segment is better than the other strategies (6.3, figure 6.2)",
                largest(MEMORY, SEGMENT, PATH, SIMPLIFIED, RR),
                holds=at_most(1),
                unit="times",
            ),
            Claim(
                "simplified segments take slightly more than segments (mean ratio)",
                "slightly more memory than segment (6.3, figure 6.2)",
                average(MEMORY, SIMPLIFIED, SEGMENT),
                holds=between(1, 1.25),
                partly=between(1, 2),
                unit="times",
            ),
            Claim(
                "round robin takes more than segments (mean ratio)",
                "executes the best operator less often, increasing the memory (6.3)",
                average(MEMORY, RR, SEGMENT),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "path capacity takes more than segments (mean ratio)",
                "unprocessed tuples wait in the input queues of the lowest operators (6.3)",
                average(MEMORY, PATH, SEGMENT),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "memory rises with the rate under every policy (least ratio of neighbours)",
                "as the data rate increases the most memory increases (6.3, figure 6.2)",
                least_step(MEMORY),
                holds=at_least(1),
                unit="times",
            ),
        ),
        picture=Lines("tuples/s on each stream", "most memory, kB", lines(MEMORY, 1e-3)),
    )
)
