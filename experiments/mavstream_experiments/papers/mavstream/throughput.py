"""Figures 6.3 to 6.6: answers over time, and how much their number varies."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, Table, at_least, at_most
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
    Value,
    cells,
    least_step,
    name,
    ratios,
)
from mavstream_experiments.pictures_model import Bars, Lines
from mavstream_experiments.registry import register

_SHOWN = (PATH, SEGMENT, RR)
"""Simplified segments are left out of the thesis's figures 6.3 to 6.5 too."""
_RATES = (100, 500, 900)
_PUBLISHED = {100: "365 : 237 = 1.54", 500: "395 : 255 = 1.55", 900: "417 : 289 = 1.44"}


def _worst(policy: str, *others: str) -> Value:
    found = ratios(DEVIATION, policy, others, _RATES)
    return lambda table: max(found(table))


def _smoother(rate: int) -> Value:
    return lambda table: table[name(SEGMENT, rate)][DEVIATION] / table[name(PATH, rate)][DEVIATION]


def _spread(rate: int) -> Value:
    def spread(table: Table) -> float:
        found = [table[name(policy, rate)]["answers"] for policy in _SHOWN]
        return max(found) - min(found)

    return spread


for _number, _rate in enumerate(_RATES, start=3):
    register(
        Experiment(
            name=f"mavstream-figure-6.{_number}",
            paper=PAPER,
            title=f"Answers over time at {_rate} tuples/s",
            about="Answers per second in the course of a run under three policies.",
            calibration=CALIBRATION,
            cells=cells(_SHOWN, (_rate,)),
            claims=(
                Claim(
                    "the output varies more under segments than under path capacity (standard deviations)",
                    f"path capacity is much smoother: {_PUBLISHED[_rate]} (6.4, figures 6.{_number} and 6.6)",
                    _smoother(_rate),
                    holds=at_least(1.25),
                    partly=at_least(1),
                    unit="times",
                ),
                Claim(
                    "all policies give the same number of answers (most less least)",
                    "the total number of tuples given out is the same (6.4)",
                    _spread(_rate),
                    holds=at_most(0),
                    unit="answers",
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
        title="How much the output varies",
        about="Standard deviation of the answers per second, under four policies.",
        calibration=f"{CALIBRATION} The printed deviations belong to another number of answers per second; "
        "only their order can be compared.",
        cells=cells(POLICIES, _RATES),
        claims=(
            Claim(
                "path capacity varies least (largest ratio to the best other)",
                "237, 255, 289 against 298 to 474 (figure 6.6)",
                _worst(PATH, SIMPLIFIED, SEGMENT, RR),
                holds=at_most(1),
                unit="times",
            ),
            Claim(
                "simplified segments vary less than segments (largest ratio)",
                "298 : 365, 312 : 395, 353 : 417 (figure 6.6)",
                _worst(SIMPLIFIED, SEGMENT),
                holds=at_most(1),
                unit="times",
            ),
            Claim(
                "segments vary less than round robin (largest ratio)",
                "365 : 386, 395 : 459, 417 : 474 (figure 6.6)",
                _worst(SEGMENT, RR),
                holds=at_most(1),
                unit="times",
            ),
            Claim(
                "the deviation rises with the rate under every policy (least ratio of neighbours)",
                "as the data rate increases, so does the deviation (6.4, figure 6.6)",
                least_step(DEVIATION, _RATES),
                holds=at_least(1),
                partly=at_least(0.95),
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
