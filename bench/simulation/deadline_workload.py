"""Workload of the deadlines benchmark: twelve queries of different cost with latency targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.simulation.live_query import LiveQuery, live_query
from mavstream_protocol.qos import QosSpec
from mavstream_server.queries.start import latency_target

PRIORITIES = {"H": 6, "C": 3, "N": 1}
QUERIES = 12
TIGHTEST_MS, LOOSEST_MS = 5.0, 2000.0
# Rows are made expensive, so that the capacity is some ten thousand tuples/s, which can be simulated.
_TERM = "sqrt(exp(ln(temperature + {}) * 0.5) + exp(ln(humidity + {}) * 0.5))"
_TERMS = 5
_SEED = 3


def targets_ms() -> list[float]:
    """Return the latency targets, from the tightest to the loosest in equal ratios."""
    return [round(one, 1) for one in np.geomspace(TIGHTEST_MS, LOOSEST_MS, QUERIES).tolist()]


def deadline_queries() -> list[LiveQuery]:
    """Return the queries; the four with the tightest targets are of class H, and so on.

    What a query costs has nothing to do with its target: one to four expensive columns, in random order.
    """
    columns = np.random.default_rng(_SEED).permutation([1, 2, 3, 4] * (QUERIES // 4)).tolist()
    names = [class_name for class_name in PRIORITIES for _ in range(QUERIES // len(PRIORITIES))]
    return [
        _query(f"{class_name}{number}", class_name, width, least_temperature(number), target)
        for number, (class_name, width, target) in enumerate(zip(names, columns, targets_ms(), strict=True))
    ]


def least_temperature(number: int) -> int:
    """Return the lowest temperature that a query answers: 0, 4, 8 or 12 of 40."""
    return 4 * (number % 4)


def _query(name: str, class_name: str, columns: int, least: int, target_ms: float) -> LiveQuery:
    compute: dict[str, Any] = {"location": "location"}
    for column in range(columns):
        terms = (_TERM.format(1 + column, 1 + term) for term in range(_TERMS))
        compute[f"value_{column}"] = " + ".join(terms)
    nodes = {
        "in": {"op": "source", "stream": name},
        "warm": {"op": "select", "input": "in", "where": f"temperature >= {least}"},
        "answer": {"op": "project", "input": "warm", "compute": compute},
    }
    qos = QosSpec.model_validate({"latency": {"p99": f"{target_ms:g}ms"}})
    return live_query(name, class_name, (name,), nodes, latency_target(qos))
