"""Figure 6.7: memory over time with bursts of input."""

from __future__ import annotations

import numpy as np

from mavstream_experiments.bands import above, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table, Value
from mavstream_experiments.papers.mavstream import PAPER
from mavstream_experiments.papers.mavstream.overload import LABELS, PATH, SEGMENT, SIMPLIFIED
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_POLICIES = (PATH, SIMPLIFIED, SEGMENT)
_STEP_S, _END_S = 10, 500
_BEFORE_S, _BURST_S = 290, 340
"""Steps of 10 s before and at the end of the second burst."""


def memory_over_time(result: Result) -> Metrics:
    """Return the mean kilobytes in queues in each step of time; 0 after the end of the run."""
    seconds, size = result.queues.at // 1_000_000_000, result.queues.bytes / 1000
    means = {}
    for begin in range(0, _END_S, _STEP_S):
        within = size[(seconds > begin) & (seconds <= begin + _STEP_S)]
        means[f"kB {begin}"] = float(np.mean(within)) if within.size else 0.0
    return means


def _ratio(policy: str, other: str) -> Value:
    return lambda table: table[policy]["memory.mean"] / table[other]["memory.mean"]


def _growth(policy: str, table: Table) -> float:
    return table[policy][f"kB {_BURST_S}"] - table[policy][f"kB {_BEFORE_S}"]


register(
    Experiment(
        name="mavstream-figure-6.7",
        paper=PAPER,
        title="Memory over time with bursts",
        about="Bytes in all queues at 40 tuples/s on each stream, with bursts of 80 from 150 to 200 s and "
        "from 300 to 350 s; 20,000 tuples.",
        calibration="Costs, selectivities and sizes are fitted and the same as for figures 6.1 to 6.6; the "
        "capacity of 46 tuples/s lies between the two rates, without which the bursts had no effect. "
        "Rates and times are the thesis's.",
        cells={policy: Cell("mavstream_bursts", policy, extra=memory_over_time) for policy in _POLICIES},
        claims=(
            Claim(
                "segments take the least memory (mean over time, to the least other)",
                "segment uses less than path capacity and slightly less than simplified (6.5, figure 6.7)",
                lambda table: (
                    table[SEGMENT]["memory.mean"]
                    / min(table[other]["memory.mean"] for other in (PATH, SIMPLIFIED))
                ),
                holds=below(1),
                unit="times",
                required=True,
            ),
            Claim(
                "path capacity takes more memory than simplified segments (mean over time, ratio)",
                "more than segment and simplified segment (6.5, figure 6.7)",
                _ratio(PATH, SIMPLIFIED),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "simplified segments take slightly more memory than segments (mean over time, ratio)",
                "slightly more than segment (6.5, figure 6.7)",
                _ratio(SIMPLIFIED, SEGMENT),
                holds=between(1, 1.25, strict=True),
                partly=between(1, 2, strict=True),
                unit="times",
            ),
            Claim(
                "memory grows more in the second burst under path capacity than under segments (difference)",
                "path capacity has some bursty nature when the input rate increases (6.5)",
                lambda table: _growth(PATH, table) - _growth(SEGMENT, table),
                holds=above(0),
                unit="kB",
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
