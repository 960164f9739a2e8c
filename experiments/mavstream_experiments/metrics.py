"""Metrics: the numbers that are kept of one simulation, by name.

- `CLASS.mean` and `CLASS.p10` to `CLASS.p99`: response times of a class, ms
- `weighted`: mean of these weighted by priority, ms; also at percentiles: `weighted.p50`
- `inversion` and `starvation`: ratios of the dissertation (2.3); also `inversion.p50`
- `mean`: mean response time over all answers, ms
- `utilisation`, and `seconds` of virtual time
- `memory.max` and `memory.mean`: bytes in queues; `queue.mean`: tuples in queues
- `throughput` and `throughput.deviation`: answers per second
- `answers`, `tuples`, `slices`, `switches`, `preemptions`, `transitions`: counts
- `updates`: schedule changes of a policy that corrects inversions; `converged`: time of the last one, s
- `cpu`: seconds of processor time that the simulation took
"""

from __future__ import annotations

from mavstream_server.simulation.report.metrics import LEVELS
from mavstream_server.simulation.report.result import Result


def metrics_of(result: Result) -> dict[str, float]:
    """Return the metrics of a run, without those that it has no value for."""
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
    for name, of_class in result.classes.items():
        found[f"{name}.mean"] = of_class.mean_ms
        found |= {f"{name}.p{level}": of_class.at(level) for level in LEVELS}
    for level in LEVELS:
        found[f"inversion.p{level}"] = result.inversion(level)
        found[f"weighted.p{level}"] = result.weighted_ms(level)
    if result.convergence is not None:
        found["updates"] = float(result.convergence.updates)
        found["converged"] = result.convergence.seconds
    return {name: float(value) for name, value in found.items() if value is not None}
