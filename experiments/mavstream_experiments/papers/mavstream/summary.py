"""Figure 6.8: summary of the three policies of the thesis."""

from __future__ import annotations

from mavstream_experiments.bands import Band, above, below
from mavstream_experiments.model import Claim, Experiment, Value
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import (
    CALIBRATION,
    DEVIATION,
    LABELS,
    LATENCY,
    MEMORY,
    PATH,
    RATES,
    SEGMENT,
    SIMPLIFIED,
    average,
    cells,
    name,
)
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_POLICIES = (PATH, SIMPLIFIED, SEGMENT)
_SHOWN = {"latency": LATENCY, "maximum memory": MEMORY, "deviation of throughput": DEVIATION}


def _claim(text: str, published: str, value: Value, holds: Band, fitted: bool = False) -> Claim:
    return Claim(
        f"{text} (mean ratio)", f"{published} (figure 6.8)", value, holds, unit="times", fitted=fitted
    )


register(
    Experiment(
        name="mavstream-figure-6.8",
        paper=PAPER,
        title="Summary, relative to segments",
        about="Latency, memory and deviation of throughput of path capacity and simplified segments, each "
        "divided by that of segments, on average over the rates of 100 to 900 tuples/s.",
        calibration=CALIBRATION,
        cells=cells(_POLICIES, RATES),
        claims=(
            _claim(
                "latency: segments higher than path capacity",
                "path capacity low, segment high",
                average(LATENCY, SEGMENT, PATH),
                above(1),
                fitted=True,
            ),
            _claim(
                "latency: simplified segments lower than segments",
                "simplified better than segment",
                average(LATENCY, SIMPLIFIED, SEGMENT),
                below(1),
            ),
            _claim(
                "memory: path capacity higher than segments",
                "path capacity high, segment low",
                average(MEMORY, PATH, SEGMENT),
                above(1),
            ),
            _claim(
                "memory: path capacity higher than simplified segments",
                "path capacity high, simplified slightly more than segment",
                average(MEMORY, PATH, SIMPLIFIED),
                above(1),
            ),
            _claim(
                "deviation of throughput: segments higher than path capacity",
                "path capacity steady, segment bursty",
                average(DEVIATION, SEGMENT, PATH),
                above(1),
            ),
            _claim(
                "deviation of throughput: segments higher than simplified segments",
                "simplified steady, segment bursty",
                average(DEVIATION, SEGMENT, SIMPLIFIED),
                above(1),
            ),
        ),
        picture=Bars(
            "relative to segments",
            {
                label: {LABELS[policy]: average(metric, policy, SEGMENT) for policy in _POLICIES}
                for label, metric in _SHOWN.items()
            },
            log_y=True,
        ),
        quick=(name(SIMPLIFIED, 500),),
    )
)
