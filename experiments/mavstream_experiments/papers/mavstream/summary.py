"""Figure 6.8: the thesis's summary of its three new policies."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, at_least, at_most
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
    Value,
    average,
    cells,
    name,
)
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_POLICIES = (PATH, SIMPLIFIED, SEGMENT)
_SHOWN = {"latency": LATENCY, "most memory": MEMORY, "deviation of the output": DEVIATION}


def _claim(text: str, published: str, value: Value, up: bool = True) -> Claim:
    holds = at_least(1) if up else at_most(1)
    return Claim(f"{text} (mean ratio)", f"{published} (figure 6.8)", value, holds=holds, unit="times")


register(
    Experiment(
        name="mavstream-figure-6.8",
        paper=PAPER,
        title="Summary, relative to segments",
        about="Latency, memory and steadiness of path capacity and simplified segments, each divided by that "
        "of segments, on average over the rates of 100 to 900 tuples/s.",
        calibration=CALIBRATION,
        cells=cells(_POLICIES, RATES),
        claims=(
            _claim(
                "latency: segments against path capacity",
                "path capacity low, segment high",
                average(LATENCY, SEGMENT, PATH),
            ),
            _claim(
                "latency: simplified segments against segments",
                "simplified better than segment",
                average(LATENCY, SIMPLIFIED, SEGMENT),
                up=False,
            ),
            _claim(
                "memory: path capacity against segments",
                "path capacity high, segment low",
                average(MEMORY, PATH, SEGMENT),
            ),
            _claim(
                "memory: path capacity against simplified segments",
                "path capacity high, simplified slightly more than segment",
                average(MEMORY, PATH, SIMPLIFIED),
            ),
            _claim(
                "deviation of the output: segments against path capacity",
                "path capacity steady, segment bursty",
                average(DEVIATION, SEGMENT, PATH),
            ),
            _claim(
                "deviation of the output: segments against simplified segments",
                "simplified steady, segment bursty",
                average(DEVIATION, SEGMENT, SIMPLIFIED),
            ),
        ),
        picture=Bars(
            "relative to segments",
            {
                label: {LABELS[policy]: average(figure, policy, SEGMENT) for policy in _POLICIES}
                for label, figure in _SHOWN.items()
            },
            log_y=True,
        ),
        quick=(name(SIMPLIFIED, 500),),
    )
)
