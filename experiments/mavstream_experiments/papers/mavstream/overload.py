"""Shared by sections 6.2 to 6.4: runs of one query at rates of 100 to 900 tuples/s, all of them overload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from mavstream_experiments.model import Cell, Metrics, Table, Value
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
    "No cost, selectivity or size is published: all are fitted, the share of the join such that path "
    "capacity is about 13 % faster than segments. Rates, the number of tuples and the windows of 1000 tuples "
    "are the thesis's. Capacity is 46 tuples/s on each stream, so that all these rates are overload, as the "
    "rates of 6.5 imply. Quantum 20 ms, 0.5 ms for a decision (fitted)."
)

STEP_S, STEPS = 5, 30
"""Length of the steps in which throughput is measured, in seconds, and their number."""


def answers_over_time(result: Result) -> Metrics:
    """Return the answers per second in each step of time; 0 after the end of the run."""
    rates = result.throughput(STEP_S).tolist()
    padded = [*rates, *([0.0] * STEPS)][:STEPS]
    return {f"answers {step * STEP_S}": rate for step, rate in enumerate(padded)}


def name(policy: str, rate: int) -> str:
    """Return the name of a cell."""
    return f"{policy} {rate}"


def cells(policies: Sequence[str] = POLICIES, rates: Sequence[int] = RATES) -> dict[str, Cell]:
    """Return the cells by name."""
    return {
        name(policy, rate): Cell(
            "mavstream", policy, settings={"parameters": {"rate": rate}}, extra=answers_over_time
        )
        for policy in policies
        for rate in rates
    }


def ratios(
    metric: str, policy: str, others: Sequence[str], rates: Sequence[int] = RATES
) -> Callable[[Table], list[float]]:
    """Return for each rate a policy's metric divided by the least of others."""
    return lambda table: [
        table[name(policy, rate)][metric] / min(table[name(other, rate)][metric] for other in others)
        for rate in rates
    ]


def largest(metric: str, policy: str, *others: str) -> Value:
    """Return the largest over the rates of a policy's metric divided by the least of others."""
    found = ratios(metric, policy, others)
    return lambda table: max(found(table))


def average(metric: str, policy: str, *others: str) -> Value:
    """Return the mean over the rates of a policy's metric divided by the least of others."""
    found = ratios(metric, policy, others)
    return lambda table: fmean(found(table))


def least_step(metric: str, rates: Sequence[int] = RATES) -> Value:
    """Return the least ratio of a metric from one rate to the next, over all policies."""
    return lambda table: min(
        table[name(policy, fast)][metric] / table[name(policy, slow)][metric]
        for policy in POLICIES
        for slow, fast in pairwise(rates)
    )


def lines(metric: str, scale: float) -> dict[str, dict[float, Value]]:
    """Return a line over the rates for each policy; the metric is multiplied by `scale`."""

    def scaled(policy: str, rate: int) -> Value:
        return lambda table: scale * table[name(policy, rate)][metric]

    return {LABELS[policy]: {rate: scaled(policy, rate) for rate in RATES} for policy in POLICIES}
