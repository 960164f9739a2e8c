"""Metrics over time: response times and inversions in windows and phases of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mavstream_experiments.model import Metrics
from mavstream_server.simulation.report.metrics import MILLISECOND, Numbers, mean_by_window
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.scenario import SECOND

Phases = Mapping[str, tuple[float, float]]
"""Begin and end of each phase, in seconds."""


def mean_over_time(result: Result, window_s: float) -> Numbers:
    """Return the mean response time (ms) over all answers in every window; NaN in windows without answers."""
    departures = np.concatenate([one.departures for one in result.answers.values()])
    responses = np.concatenate([one.responses for one in result.answers.values()])
    end = int(result.seconds * SECOND)
    return mean_by_window(departures, responses, end, int(window_s * SECOND)) / MILLISECOND


def phases(result: Result, bounds: Phases) -> Metrics:
    """Return `PHASE.CLASS`: the mean response time (ms) of the answers that left in a phase."""
    found = {}
    for phase, (begin, end) in bounds.items():
        for name, one in result.answers.items():
            inside = (one.departures >= begin * SECOND) & (one.departures < end * SECOND)
            if inside.any():
                found[f"{phase}.{name}"] = float(one.responses[inside].mean()) / MILLISECOND
    return found


def inversions(result: Result, window_s: float, bounds: Phases) -> Metrics:
    """Return the inversion in windows of each phase, by the priorities of the time.

    `PHASE.inversion` is the mean inversion ratio, `PHASE.inverted` the percentage of windows that have any.
    """
    ratios = np.nan_to_num(result.inversion_over_time(window_s))
    middles = (np.arange(ratios.size) + 0.5) * window_s
    found = {}
    for phase, (begin, end) in bounds.items():
        inside = ratios[(middles >= begin) & (middles < end)]
        found[f"{phase}.inversion"] = float(inside.mean())
        found[f"{phase}.inverted"] = 100 * float((inside > 0).mean())
    return found
