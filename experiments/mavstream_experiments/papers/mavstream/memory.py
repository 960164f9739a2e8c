"""Figure 6.2: maximum memory over the data rate."""

from __future__ import annotations

from mavstream_experiments.bands import above, below, between
from mavstream_experiments.model import Claim, Experiment
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
    lines,
)
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

register(
    Experiment(
        name="mavstream-figure-6.2",
        paper=PAPER,
        title="Maximum memory over the data rate",
        about="Maximum of the bytes in all queues, sampled every second, under four policies.",
        calibration=CALIBRATION,
        cells=cells(),
        claims=(
            Claim(
                "segments take the least memory (to the least other, mean over the rates)",
                "segment is better than the other strategies (6.3, figure 6.2)",
                average(MEMORY, SEGMENT, PATH, SIMPLIFIED, RR),
                holds=below(1),
                unit="times",
                required=True,
            ),
            Claim(
                "segments take the least memory at every rate (to the least other, largest)",
                "segment is better than the other strategies (6.3, figure 6.2)",
                largest(MEMORY, SEGMENT, PATH, SIMPLIFIED, RR),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "simplified segments take slightly more memory than segments (ratio, mean over the rates)",
                "slightly more memory than segment (6.3, figure 6.2)",
                average(MEMORY, SIMPLIFIED, SEGMENT),
                holds=between(1, 1.25, strict=True),
                partly=between(1, 2, strict=True),
                unit="times",
            ),
            Claim(
                "round robin takes more memory than segments (ratio, mean over the rates)",
                "executes the best operator less often, increasing the memory (6.3)",
                average(MEMORY, RR, SEGMENT),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "path capacity takes more memory than segments (ratio, mean over the rates)",
                "unprocessed tuples wait in the input queues of the lowest operators (6.3)",
                average(MEMORY, PATH, SEGMENT),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=Lines("tuples/s on each stream", "maximum memory, kB", lines(MEMORY, 1e-3)),
    )
)
