"""The report of the isolation benchmark: medians of its runs, beside the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.outcome import shown, text_table

ALONE_P50_MS, ALONE_P99_MS = 4.0, 12.0
RATIO, BESIDE_P99_MS = 1.5, 12.0
N_OF_RR = 0.8


def medians(runs: Sequence[Any]) -> Any:
    """Return the medians of the numbers in objects of the same shape; the rest as in the first."""
    first = runs[0]
    if isinstance(first, Mapping):
        return {key: medians([run[key] for run in runs]) for key in first}
    if isinstance(first, bool) or not isinstance(first, int | float):
        return first
    return median(runs)


def most_beside_ms(alone_p99: float) -> float:
    """Return the highest p99 beside class N that the target allows."""
    return max(RATIO * alone_p99, BESIDE_P99_MS)


def text(metrics: Mapping[str, Any]) -> str:
    """Return the tables and the notes."""
    policies: Mapping[str, Any] = metrics["policies"]
    names = [name if name == one["policy"] else f"{name} ({one['policy']})" for name, one in policies.items()]
    parts = [
        f"capacity {metrics['capacity_tuples_per_s']:,.0f} tuples/s; H a tenth of it, N twice as much",
        text_table(("class H, ms", *names, "target"), list(_rows(list(policies.values())))),
    ]
    stages = [one["beside"].get("stages_ms") for one in policies.values()]
    if all(stages):
        parts.append(_stages(names, policies))
    return "\n\n".join([*parts, *metrics["skipped"]])


def _rows(policies: Sequence[Any]) -> list[tuple[str, ...]]:
    def row(label: str, form: str, target: str, *keys: str) -> tuple[str, ...]:
        return (label, *(shown(_at(one, keys), form) for one in policies), target)

    limits = (f"{most_beside_ms(one['alone']['p99']):.1f}" for one in policies)
    return [
        row("alone p50", ".1f", f"{ALONE_P50_MS:g}", "alone", "p50"),
        row("alone p99", ".1f", f"{ALONE_P99_MS:g}", "alone", "p99"),
        row("beside N p50", ".1f", "", "beside", "p50"),
        row("beside N p99", ".1f", "as below", "beside", "p99"),
        ("  at most", *limits, f"{RATIO:g} x alone, or {BESIDE_P99_MS:g}"),
        row("p99 beside to alone", ".2f", "", "ratio"),
        row("N, tuples/s", ",.0f", "", "n_tuples_per_s"),
        row("N, of that under rr", ".2f", f"{N_OF_RR:g}", "n_of_rr"),
        row("lost", ".0f", "0", "lost"),
        row("send lag of H alone, p99", ".1f", "", "alone", "send_lag_ms", "H", "p99"),
        row("send lag of H beside N, p99", ".1f", "", "beside", "send_lag_ms", "H", "p99"),
        row("send lag of N, p99", ".1f", "", "beside", "send_lag_ms", "N", "p99"),
        row("N held by credit, s", ".1f", "", "beside", "held_by_credit_s", "N"),
        row("server beside N, cores", ".2f", "", "beside", "server_cores"),
        row("producer of H, cores", ".2f", "", "beside", "producer_cores", "H"),
        row("subscriber of H, cores", ".2f", "", "beside", "subscriber_cores"),
        row("producer of N, cores", ".2f", "", "beside", "producer_cores", "N"),
    ]


def _stages(names: Sequence[str], policies: Mapping[str, Any]) -> str:
    rows = []
    for phase in ("alone", "beside"):
        for stage in next(iter(policies.values()))[phase]["stages_ms"]:
            found = [one[phase]["stages_ms"][stage] for one in policies.values()]
            cells = (f"{shown(one['p50'], '.1f')} / {shown(one['p99'], '.1f')}" for one in found)
            rows.append((f"{phase}: {stage.replace('_', ' ')}", *cells))
    return text_table(("p50 / p99 of each stage, ms", *names), rows)


def _at(metrics: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        metrics = metrics[key]
    return metrics
