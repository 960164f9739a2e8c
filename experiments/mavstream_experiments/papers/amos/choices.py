"""Runs of the paper's two query plans under single policies and under AMoS, and their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from mavstream_experiments.model import Cell, Metrics, Value
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.scenario import SECOND

PLAN_1, PLAN_2 = "amos_1", "amos_2"
RR, FIFO, MTIQ, CHAIN = "rr", "fifo", "mtiq", "chain"
SINGLE = (RR, FIFO, MTIQ, CHAIN)
LABELS = {RR: "RR", FIFO: "FIFO", MTIQ: "MTIQ", CHAIN: "Chain"}
PRINTED, SHARP = "amos", "amos, sharp"
SEEDS = 10
"""More seeds than usual, because AMoS chooses at random."""

DELAY, QUEUE, OUTPUT = "mean", "queue.mean", "output"
FED_S, STEP_S = 40, 5

CALIBRATION = (
    "Fitted: costs and selectivities (the figure that has them is missing from the text) and rates (not "
    "published), to a mean load of 0.9 that is exceeded in bursts of 5 seconds; the length of a turn (5 "
    "tuples under FIFO, 25 under MTIQ and Chain, 20 ms under RR); a context switch of 50 us. Poisson "
    "arrivals whose mean changes every 5 seconds are the paper's."
)

_TURNS: dict[str, dict[str, Any]] = {
    RR: {"quantum_us": 20000},
    FIFO: {"tuples": 5},
    MTIQ: {"tuples": 25},
    CHAIN: {"tuples": 25},
}
_QUANTIFIERS = {"delay": "minimise", "queued_tuples": "minimise", "output_rate": "maximise"}


def over_time(result: Result) -> Metrics:
    """Return delays (ms) and tuples in queues over time, and the answers per second while tuples arrive."""
    answers = result.answers["all"]
    at, tuples = result.queues.at, result.queues.tuples
    found = {OUTPUT: float(np.sum(answers.departures <= FED_S * SECOND)) / FED_S}
    for begin in range(0, FED_S, STEP_S):
        low, high = begin * SECOND, (begin + STEP_S) * SECOND
        left = answers.responses[(answers.departures > low) & (answers.departures <= high)]
        found[f"delay {begin}"] = float(np.mean(left)) / 1e6 if left.size else 0.0
        found[f"queue {begin}"] = float(np.mean(tuples[(at > low) & (at <= high)]))
    return found


def singles(plan: str) -> dict[str, Cell]:
    """Return the runs under single policies."""
    return {policy: Cell(plan, policy, _TURNS[policy], extra=over_time) for policy in SINGLE}


def adaptive(plan: str, **weights: float) -> dict[str, Cell]:
    """Return the runs under AMoS with weighted requirements, with the printed and the sharper learner."""
    requirements = [
        {"metric": metric, "quantifier": _QUANTIFIERS[metric], "weight": weight}
        for metric, weight in weights.items()
    ]
    options = {
        "policies": [{"policy": policy, "options": _TURNS[policy]} for policy in SINGLE],
        "specification": {"requirements": requirements},
    }
    learners = {PRINTED: "printed", SHARP: "sharp"}
    return {
        name: Cell(plan, "amos", {**options, "learner": learner}, extra=over_time)
        for name, learner in learners.items()
    }


def to_best(metric: str, policy: str, others: Sequence[str] = SINGLE) -> Value:
    """Return a policy's metric divided by the least of others."""
    return lambda table: table[policy][metric] / min(table[other][metric] for other in others)


def to_mean(metric: str, policy: str, others: Sequence[str] = SINGLE) -> Value:
    """Return a policy's metric divided by the mean of others."""
    return lambda table: table[policy][metric] / fmean(table[other][metric] for other in others)


def over_run(metric: str, policies: Sequence[str]) -> dict[str, dict[float, tuple[str, str]]]:
    """Return a line over time for each policy."""
    return {
        LABELS.get(policy, policy.replace("amos", "AMoS")): {
            begin: (policy, f"{metric} {begin}") for begin in range(0, FED_S, STEP_S)
        }
        for policy in policies
    }
