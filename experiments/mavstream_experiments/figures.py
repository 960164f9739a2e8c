"""Figures: what is kept of one simulation.

For each class `NAME.mean` and `NAME.p10` to `NAME.p99` in ms; over all of them `weighted`, `inversion`,
`inversion.p50` (and so on) and `starvation`; `mean` over all answers; `utilisation`; `memory.max` and
`memory.mean` in bytes, `queue.mean` in tuples; `throughput` and `throughput.deviation` in answers per
second; `answers`, `tuples`, `slices`, `switches`, `preemptions`, `transitions`; `updates` and `converged`
(seconds) of policies that correct inversions; `cpu`, the real seconds that it took.
"""

from __future__ import annotations

from mavstream_server.simulation.report.metrics import LEVELS
from mavstream_server.simulation.report.result import Result


def figures_of(result: Result) -> dict[str, float]:
    """Return the figures of a run; what it has no value for is left out."""
    found: dict[str, float | None] = {
        "weighted": result.weighted_ms(),
        "inversion": result.inversion(),
        "starvation": result.starvation_ratio,
        "mean": result.mean_ms,
        "utilisation": result.utilisation,
        "seconds": result.seconds,
        "memory.max": float(result.queues.max_bytes),
        "memory.mean": result.queues.mean_bytes,
        "queue.mean": result.queues.mean_tuples,
        "throughput": float(result.throughput().mean()) if result.seconds >= 1 else None,
        "throughput.deviation": result.throughput_deviation() if result.seconds >= 1 else None,
        "answers": float(result.counts.answers),
        "tuples": float(result.counts.tuples),
        "slices": float(result.counts.slices),
        "switches": float(result.counts.switches),
        "preemptions": float(result.counts.preemptions),
        "transitions": float(result.counts.transitions),
        "cpu": result.cpu_s,
    }
    for name, figures in result.classes.items():
        found[f"{name}.mean"] = figures.mean_ms
        found |= {f"{name}.p{level}": figures.at(level) for level in LEVELS}
    for level in LEVELS:
        found[f"inversion.p{level}"] = result.inversion(level)
        found[f"weighted.p{level}"] = result.weighted_ms(level)
    if result.convergence is not None:
        found["updates"] = float(result.convergence.updates)
        found["converged"] = result.convergence.seconds
    return {name: float(value) for name, value in found.items() if value is not None}
