"""Fits the workload of a live run for the simulator: costs of operators from a trace, by least squares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from bench.simulation.live_query import LiveQuery
from mavstream_server.engine.slices.trace import TracedSlice
from mavstream_server.simulation import Workload
from mavstream_server.simulation.workload.query_model import QueryPart

_MOST_NOISE = 0.95
_TARGET = "latency_us"


class Costs(NamedTuple):
    """Measured costs of an operator: microseconds per call and per tuple, selectivity, and variation."""

    setup: float
    cost: float
    selectivity: float
    variation: float
    """The standard deviation of the time of a call, relative to the mean."""
    time: float
    """All that its calls took, in microseconds."""


_NO_ANSWERS = Costs(0.0, 0.0, 1.0, 0.0, 0.0)


CostsByOperator = Mapping[tuple[str, str], Costs]
"""By query and kind of operator."""


def operator_costs(slices: Iterable[TracedSlice]) -> CostsByOperator:
    """Return the costs and selectivity of each operator, from slices of one operator."""
    samples: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for one in slices:
        if len(one.operators) == 1:
            samples[one.query, one.operators[0]].append((one.consumed, one.elapsed, one.produced))
    return {key: _fitted(np.array(known, dtype=np.float64)) for key, known in samples.items()}


def fused_costs(slices: Iterable[TracedSlice], alone: CostsByOperator) -> CostsByOperator:
    """Return the costs of operators that ran together in slices, given those that they have alone.

    Operators that hand over directly cost less. How the time of a slice divides among them is not traced,
    so all costs of a query are scaled to add up to the time of its slices.
    """
    fused: dict[str, list[TracedSlice]] = defaultdict(list)
    for one in slices:
        if len(one.operators) > 1:
            fused[one.query].append(one)
    scaled: dict[tuple[str, str], Costs] = {}
    for query, traced in fused.items():
        expected = np.array([_expected_us(one, alone) for one in traced])
        elapsed = np.array([one.elapsed / 1000 for one in traced])
        factor = float(elapsed.sum() / max(expected.sum(), 1e-9))
        variation = float((elapsed - factor * expected).std() / max(elapsed.mean(), 1e-3))
        kinds = sorted(set(traced[0].operators))
        for kind in kinds:
            setup, cost, selectivity, _, _ = _costs(alone, query, kind)
            time = float(elapsed.sum()) / len(kinds)
            scaled[query, kind] = Costs(factor * setup, factor * cost, selectivity, variation, time)
    return scaled


def _expected_us(slice_: TracedSlice, alone: CostsByOperator) -> float:
    """Return what the operators of a slice would cost alone, with the tuples that the slice consumed."""
    setup = per_tuple = consumed = 0.0
    flow = 1.0  # tuples that reach an operator, for each tuple of the sources
    for place, kind in enumerate(slice_.operators):
        one = _costs(alone, slice_.query, kind)
        setup += one.setup
        if kind == "source" and place:
            continue  # the sources of a slice divide its tuples
        per_tuple += flow * one.cost
        consumed += flow
        flow *= 1.0 if kind == "source" else one.selectivity
    return setup + per_tuple * slice_.consumed / consumed


def _fitted(samples: np.ndarray) -> Costs:
    """Separate the cost per call from the cost per tuple by least squares."""
    tuples, elapsed, produced = samples.T
    spread = tuples.var()
    slope = float(np.cov(tuples, elapsed, bias=True)[0, 1] / spread) if spread > 0 else 0.0
    # If calls have about the same size, the slope is mostly noise: both costs are at least zero.
    slope = min(max(slope, 0.0), float(elapsed.mean() / max(tuples.mean(), 1e-9)))
    setup = max(float(elapsed.mean()) - slope * float(tuples.mean()), 0.0)
    variation = float((elapsed - slope * tuples).std() / max(elapsed.mean(), 1.0))
    selectivity = float(produced.sum() / max(tuples.sum(), 1.0))
    return Costs(setup / 1000, slope / 1000, selectivity, variation, float(elapsed.sum()) / 1000)


def fitted_workload(
    queries: Sequence[LiveQuery],
    priorities: Mapping[str, int],
    arrivals: Mapping[str, Sequence[float]],
    measured: CostsByOperator,
    decision: float,
) -> Workload:
    """Return the workload of a live run for the simulator.

    `arrivals` are seconds by stream, `decision` is the time of a slice outside of operators in ns.
    """
    sources = [one for (_, kind), one in measured.items() if kind == "source"]
    parts: list[dict[str, Any]] = []
    for query in queries:
        operators: dict[str, Any] = {}
        for name, kind, inputs in query.operators:
            one = _costs(measured, query.name, kind)
            operators[name] = {
                "kind": kind,
                "inputs": inputs,
                "setup_us": one.setup,
                "cost_us": one.cost,
                "selectivity": 1.0 if kind == "output" else one.selectivity,
                "selection": "random",
            }
        parts.append({"id": query.name, "class": query.class_name, "operators": operators})
        if query.latency_target is not None and _TARGET in QueryPart.model_fields:
            parts[-1][_TARGET] = query.latency_target
    return Workload.model_validate(
        {
            "name": "live",
            "about": "what a live run had",
            "classes": {name: {"priority": priority} for name, priority in priorities.items()},
            "streams": {
                stream: {"arrivals": "recorded", "offsets_s": tuple(offsets)}
                for stream, offsets in arrivals.items()
            },
            "sources": {
                "setup_us": fmean(one.setup for one in sources),
                "cost_us": fmean(one.cost for one in sources),
            },
            "overheads": {"decision_us": decision / 1000, "noise": _noise(measured.values())},
            "queries": parts,
        }
    )


def _costs(measured: CostsByOperator, query: str, kind: str) -> Costs:
    known = measured.get((query, kind))
    if known is None and kind != "output":
        raise RuntimeError(
            f"the trace has no slice of {query} with its {kind} alone: trace a policy whose unit is the "
            "operator, for a longer time"
        )
    return _NO_ANSWERS if known is None else known


def _noise(measured: Iterable[Costs]) -> float:
    """Return the noise that varies as calls do: costs are spread evenly around their means."""
    known = list(measured)
    variation = sum(one.time * one.variation for one in known) / sum(one.time for one in known)
    return min(sqrt(3) * variation, _MOST_NOISE)
