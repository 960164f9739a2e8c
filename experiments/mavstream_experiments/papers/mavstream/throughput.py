"""Figures 6.3 to 6.6: throughput over time, and its standard deviation."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, below
from mavstream_experiments.model import Claim, Experiment, Value
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import (
    CALIBRATION,
    DEVIATION,
    LABELS,
    PATH,
    POLICIES,
    RR,
    SEGMENT,
    SIMPLIFIED,
    STEP_S,
    STEPS,
    cells,
    least_step,
    name,
    ratios,
)
from mavstream_experiments.pictures_model import Bars, Lines
from mavstream_experiments.registry import register

_SHOWN = (PATH, SEGMENT, RR)
"""Without simplified segments, as in the thesis's figures 6.3 to 6.5."""
_RATES = (100, 500, 900)
_PUBLISHED = {100: "365 : 237 = 1.54", 500: "395 : 255 = 1.55", 900: "417 : 289 = 1.44"}


def _worst(policy: str, *others: str) -> Value:
    found = ratios(DEVIATION, policy, others, _RATES)
    return lambda table: max(found(table))


def _smoother(rate: int) -> Value:
    return lambda table: table[name(SEGMENT, rate)][DEVIATION] / table[name(PATH, rate)][DEVIATION]


for _number, _rate in enumerate(_RATES, start=3):
    register(
        Experiment(
            name=f"mavstream-figure-6.{_number}",
            paper=PAPER,
            title=f"Throughput over time at {_rate} tuples/s",
            about="Answers per second over the run under three policies.",
            calibration=CALIBRATION,
            cells=cells(_SHOWN, (_rate,)),
            claims=(
                Claim(
                    "throughput varies more under segments than under path capacity (deviation, ratio)",
                    f"path capacity is much smoother: {_PUBLISHED[_rate]} (6.4, figures 6.{_number} and 6.6)",
                    _smoother(_rate),
                    holds=at_least(1.25),
                    partly=above(1),
                    unit="times",
                ),
            ),
            picture=Lines(
                "time, s",
                "answers per second",
                {
                    LABELS[policy]: {
                        step * STEP_S: (name(policy, _rate), f"answers {step * STEP_S}")
                        for step in range(STEPS)
                    }
                    for policy in _SHOWN
                },
            ),
        )
    )

register(
    Experiment(
        name="mavstream-figure-6.6",
        paper=PAPER,
        title="Standard deviation of the throughput",
        about="Standard deviation of the answers per second, under four policies.",
        calibration=f"{CALIBRATION} The published deviations belong to another number of answers per second; "
        "only their order can be compared.",
        cells=cells(POLICIES, _RATES),
        claims=(
            Claim(
                "path capacity varies least (to the least other, largest over the rates)",
                "237, 255, 289 against 298 to 474 (figure 6.6)",
                _worst(PATH, SIMPLIFIED, SEGMENT, RR),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "simplified segments vary less than segments (ratio, largest over the rates)",
                "298 : 365, 312 : 395, 353 : 417 (figure 6.6)",
                _worst(SIMPLIFIED, SEGMENT),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "segments vary less than round robin (ratio, largest over the rates)",
                "365 : 386, 395 : 459, 417 : 474 (figure 6.6)",
                _worst(SEGMENT, RR),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "the deviation rises with the rate under every policy (to the previous rate, least)",
                "as the data rate increases, so does the deviation (6.4, figure 6.6)",
                least_step(DEVIATION, _RATES),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=Bars(
            "standard deviation, answers per second",
            {
                f"{rate} tuples/s": {LABELS[policy]: (name(policy, rate), DEVIATION) for policy in POLICIES}
                for rate in _RATES
            },
        ),
    )
)
