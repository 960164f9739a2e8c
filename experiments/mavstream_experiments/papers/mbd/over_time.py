"""Figures over time: response times and inversions in windows of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mavstream_experiments.model import Figures
from mavstream_server.simulation.report.metrics import MILLISECOND, Numbers, mean_by_window
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.scenario import SECOND


def mean_over_time(result: Result, window_s: float) -> Numbers:
    """Return the mean response time (ms) over all answers in every window; NaN where there were none."""
    departures = np.concatenate([one.departures for one in result.answers.values()])
    responses = np.concatenate([one.responses for one in result.answers.values()])
    end = int(result.seconds * SECOND)
    return mean_by_window(departures, responses, end, int(window_s * SECOND)) / MILLISECOND


def phases(result: Result, bounds: Mapping[str, tuple[float, float]]) -> Figures:
    """Return `PHASE.CLASS`: the mean response time (ms) of answers that left in a phase, in seconds."""
    found = {}
    for phase, (begin, end) in bounds.items():
        for name, one in result.answers.items():
            inside = (one.departures >= begin * SECOND) & (one.departures < end * SECOND)
            if inside.any():
                found[f"{phase}.{name}"] = float(one.responses[inside].mean()) / MILLISECOND
    return found


def inversions(result: Result, window_s: float, bounds: Mapping[str, tuple[float, float]]) -> Figures:
    """Return for each phase the mean inversion ratio over its windows, by the priorities of the time,

    as `PHASE.inversion`, and as `PHASE.inverted` the percentage of the windows that have any.
    """
    ratios = np.nan_to_num(result.inversion_over_time(window_s))
    middles = (np.arange(ratios.size) + 0.5) * window_s
    found = {}
    for phase, (begin, end) in bounds.items():
        inside = ratios[(middles >= begin) & (middles < end)]
        found[f"{phase}.inversion"] = float(inside.mean())
        found[f"{phase}.inverted"] = 100 * float((inside > 0).mean())
    return found
