"""Figures 13 and 14: ABD adapts to a rate of class 1 that changes."""

from __future__ import annotations

import numpy as np

from mavstream_experiments.bands import at_least, at_most, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import CALIBRATION_BY_KIND, FIVE, SETTINGS
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_WINDOW_S = 0.25  # the text speaks of half a second
_WINDOWS = 30
_PUBLISHED = dict(zip(FIVE, (2.2, 2.46, 2.6, 3.8, 6.9), strict=True))
"""Mean response times; milliseconds."""


def over_time(result: Result) -> Metrics:
    """Return `CLASS.window0` and so on in ms, and `first`: the percentage of windows with class 1 fastest."""
    responses = result.response_over_time(_WINDOW_S)
    found = {
        f"{name}.window{index}": float(value)
        for name, values in responses.items()
        for index, value in enumerate(values)
    }
    best, *others = responses.values()
    found["first"] = 100 * float(np.mean(best < np.min(others, axis=0)))
    return found


def _off(table: Table) -> float:
    """Return the largest factor between a class's mean and the published one, in either direction."""
    ratios = [table["abd"][f"{name}.mean"] / published for name, published in _PUBLISHED.items()]
    return max(max(ratio, 1 / ratio) for ratio in ratios)


register(
    Experiment(
        name="abd-figure-14",
        paper=PAPER,
        title="Figure 14: ABD while the rate of class 1 changes",
        about="Response times over time on workload 5G under ABD, while the streams of class 1 bring 1200, "
        "1800 (from 2 s on), 1200 (3.5), 600 (4.5), 2000 (5.5) and again 1200 tuples/s (6 s).",
        calibration=CALIBRATION_BY_KIND
        + " The rates of class 1 are ours: figure 13, which shows them, is missing from the text.",
        cells={"abd": Cell("5G_adaptive", "abd", settings=SETTINGS, extra=over_time)},
        claims=(
            Claim(
                "ABD has no priority inversion over the whole run (inversion ratio)",
                "2.2, 2.46, 2.6, 3.8 and 6.9 ms for classes 1 to 5 (5.3.2)",
                lambda table: table["abd"]["inversion"],
                holds=at_most(0),
                no_effect=True,
            ),
            Claim(
                "class 1 is the fastest almost all the time (share of windows of 0.25 s)",
                "'except for a brief period between 5.5 and 6 seconds' of some 8 s: 94 % (5.3.2)",
                lambda table: table["abd"]["first"],
                holds=at_least(90),
                partly=at_least(75),
                unit="%",
            ),
            Claim(
                "class 5 is not starved (response time, class 5 to class 1, half to twice the published)",
                "6.9 to 2.2 ms, 3.1 times (5.3.2)",
                lambda table: table["abd"]["starvation"],
                holds=between(1.57, 6.27),
                partly=between(1, 12, strict=True),
                unit="times",
            ),
            Claim(
                "the means of the classes have the published size (largest factor between both)",
                "2.2, 2.46, 2.6, 3.8 and 6.9 ms (5.3.2)",
                _off,
                holds=at_most(2),
                partly=at_most(4),
                unit="times",
            ),
        ),
        picture=Lines(
            "time, s",
            "mean response time, ms",
            {
                name.replace("class", "class "): {
                    (index + 0.5) * _WINDOW_S: ("abd", f"{name}.window{index}") for index in range(_WINDOWS)
                }
                for name in FIVE
            },
            log_y=True,
        ),
    )
)
