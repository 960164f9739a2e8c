"""Figure 6.7: memory in the course of a run with bursts."""

from __future__ import annotations

import numpy as np

from mavstream_experiments.model import (
    Cell,
    Claim,
    Experiment,
    Figures,
    Table,
    at_least,
    at_most,
    between,
)
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import LABELS, PATH, SEGMENT, SIMPLIFIED, Value
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_POLICIES = (PATH, SIMPLIFIED, SEGMENT)
_STEP_S, _END_S = 10, 500
_BEFORE, _BURST, _FED = (290, 300), (340, 350), 400


def memory_over_time(result: Result) -> Figures:
    """Return the mean kilobytes that waited in each step of time; 0 after the end."""
    seconds, size = result.queues.at // 1_000_000_000, result.queues.bytes / 1000
    means = {}
    for begin in range(0, _END_S, _STEP_S):
        within = size[(seconds > begin) & (seconds <= begin + _STEP_S)]
        means[f"kB {begin}"] = float(np.mean(within)) if within.size else 0.0
    return means


def _mean(policy: str, other: str) -> Value:
    return lambda table: table[policy]["memory.mean"] / table[other]["memory.mean"]


def _grown(policy: str, table: Table) -> float:
    return table[policy][f"kB {_BURST[0]}"] - table[policy][f"kB {_BEFORE[0]}"]


register(
    Experiment(
        name="mavstream-figure-6.7",
        paper=PAPER,
        title="Memory over time with bursts",
        about="Bytes that wait in all queues: 40 tuples/s on each stream, and 80 from 150 to 200 s and from "
        "300 to 350 s; 20,000 tuples.",
        calibration="Costs, selectivities and sizes are fitted and the same as for figures 6.1 to 6.6; the "
        "capacity of 46 tuples/s lies between the two rates, without which the bursts would do nothing. "
        "Rates and times are the thesis's.",
        cells={policy: Cell("mavstream_bursts", policy, extra=memory_over_time) for policy in _POLICIES},
        claims=(
            Claim(
                "segments take the least memory (mean over time, ratio to the best other)",
                "segment uses less than path capacity and slightly less than simplified (6.5, figure 6.7)",
                lambda table: (
                    table[SEGMENT]["memory.mean"]
                    / min(table[other]["memory.mean"] for other in (PATH, SIMPLIFIED))
                ),
                holds=at_most(1),
                unit="times",
                required=True,
            ),
            Claim(
                "path capacity takes more memory than simplified segments (mean over time, ratio)",
                "more than segment and simplified segment (6.5, figure 6.7)",
                _mean(PATH, SIMPLIFIED),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "simplified segments take slightly more than segments (mean over time, ratio)",
                "slightly more than segment (6.5, figure 6.7)",
                _mean(SIMPLIFIED, SEGMENT),
                holds=between(1, 1.25),
                partly=between(1, 2),
                unit="times",
            ),
            Claim(
                "memory grows more in a burst under path capacity than under segments (ratio, second burst)",
                "path capacity has some bursty nature when the input rate increases (6.5)",
                lambda table: _grown(PATH, table) / _grown(SEGMENT, table),
                holds=at_least(1),
                unit="times",
            ),
            Claim(
                "memory decreases once feeding has ended (largest ratio of 430 s to 390 s)",
                "decreases once feeding is completed (6.5, figure 6.7)",
                lambda table: max(
                    table[policy][f"kB {_FED + 3 * _STEP_S}"] / table[policy][f"kB {_FED - _STEP_S}"]
                    for policy in _POLICIES
                ),
                holds=at_most(1),
                unit="times",
            ),
        ),
        picture=Lines(
            "time, s",
            "memory, kB",
            {
                LABELS[policy]: {begin: (policy, f"kB {begin}") for begin in range(0, _END_S, _STEP_S)}
                for policy in _POLICIES
            },
        ),
    )
)
