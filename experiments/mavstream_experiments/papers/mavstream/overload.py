"""Runs of the thesis's query at rates of 100 to 900 tuples/s, which 6.2 to 6.4 have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from mavstream_experiments.model import Cell, Figures, Table
from mavstream_server.simulation.report.result import Result

PATH, SIMPLIFIED, SEGMENT, RR = "path_capacity", "simplified_segment", "segment", "rr"
POLICIES = (PATH, SIMPLIFIED, SEGMENT, RR)
LABELS = {
    PATH: "path capacity",
    SIMPLIFIED: "simplified segment",
    SEGMENT: "segment",
    RR: "round robin",
}
RATES = (100, 300, 500, 700, 900)

LATENCY, MEMORY, DEVIATION = "mean", "memory.max", "throughput.deviation"

CALIBRATION = (
    "No cost, selectivity or size is printed: all are fitted, the share of the join such that path capacity "
    "is about 13 % faster than segments. Rates, the number of tuples and the windows of 1000 tuples are the "
    "thesis's. Capacity is 46 tuples/s on each stream, so that all these rates are an overload, as the rates "
    "of 6.5 imply. Quantum 20 ms, 0.5 ms for a decision (fitted)."
)

STEP_S, STEPS = 5, 30
"""Throughput is kept in steps of so many seconds."""

Value = Callable[[Table], float]


def answers_over_time(result: Result) -> Figures:
    """Return the answers per second in each step of time; 0 after the end."""
    rates = result.throughput(STEP_S).tolist()
    padded = [*rates, *([0.0] * STEPS)][:STEPS]
    return {f"answers {step * STEP_S}": rate for step, rate in enumerate(padded)}


def name(policy: str, rate: int) -> str:
    """Return the name of a run."""
    return f"{policy} {rate}"


def cells(policies: Sequence[str] = POLICIES, rates: Sequence[int] = RATES) -> dict[str, Cell]:
    """Return runs by name."""
    return {
        name(policy, rate): Cell(
            "mavstream", policy, settings={"parameters": {"rate": rate}}, extra=answers_over_time
        )
        for policy in policies
        for rate in rates
    }


def ratios(
    figure: str, policy: str, others: Sequence[str], rates: Sequence[int] = RATES
) -> Callable[[Table], list[float]]:
    """Return at each rate the ratio of a policy's figure to the least of those of others."""
    return lambda table: [
        table[name(policy, rate)][figure] / min(table[name(other, rate)][figure] for other in others)
        for rate in rates
    ]


def largest(figure: str, policy: str, *others: str) -> Value:
    """Return the largest of these ratios over the rates."""
    found = ratios(figure, policy, others)
    return lambda table: max(found(table))


def average(figure: str, policy: str, *others: str) -> Value:
    """Return the mean of these ratios over the rates."""
    found = ratios(figure, policy, others)
    return lambda table: fmean(found(table))


def least_step(figure: str, rates: Sequence[int] = RATES) -> Value:
    """Return the least ratio of a figure from one rate to the next, under any policy."""
    return lambda table: min(
        table[name(policy, fast)][figure] / table[name(policy, slow)][figure]
        for policy in POLICIES
        for slow, fast in pairwise(rates)
    )


def lines(figure: str, scale: float) -> dict[str, dict[float, Value]]:
    """Return a line over the rates for each policy; figures are multiplied by `scale`."""

    def scaled(policy: str, rate: int) -> Value:
        return lambda table: scale * table[name(policy, rate)][figure]

    return {LABELS[policy]: {rate: scaled(policy, rate) for rate in RATES} for policy in POLICIES}
