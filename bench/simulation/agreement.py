"""Compares the live engine with the simulator: the same queries, arrivals and costs.

Each policy runs live, with Poisson arrivals; then the simulator runs the same policy with the arrivals and
the costs of that run (see `bench.simulation.fitting`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from bench.outcome import Outcome, shown, text_table
from bench.simulation.agreement_workload import PRIORITIES, chains
from bench.simulation.live_run import SOURCES, LiveRun, live_run
from mavstream_server.simulation import simulate

BASELINE = "rr"
"""A policy that runs single operators: their costs are fitted to its trace."""
POLICIES = ("rr", "hr", "cqc")
UTILISATIONS = (0.5, 0.8)
TOLERANCE = 0.25
_FIRST_RATE = 50.0  # tuples/s of each stream
_SEARCHES = 4
_LEAST_SEARCH = 0.5  # seconds: every stream must have brought something


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a live run (10)")
    parser.add_argument("--policy", action="append", help="instead of rr, hr and cqc")
    parser.add_argument("--utilisation", type=float, action="append", help="instead of 0.5 and 0.8")


def run(options: argparse.Namespace) -> Outcome:
    """Run every policy live and simulated at each utilisation."""
    metrics: dict[str, Any] = {}
    for utilisation in options.utilisation or UTILISATIONS:
        rate = _rate(utilisation, max(options.seconds / 4, _LEAST_SEARCH))
        baseline = _live(BASELINE, rate, options.seconds)
        metrics[str(utilisation)] = {"tuples_per_s_per_stream": round(rate, 1)} | {
            policy: _compare(policy, rate, options.seconds, baseline) for policy in options.policy or POLICIES
        }
    return Outcome(metrics, _text(metrics))


def _rate(utilisation: float, seconds: float) -> float:
    """Return the rate at which round robin keeps the engine busy for a share of the time."""
    rate = _FIRST_RATE
    for _ in range(_SEARCHES):
        found = _live(BASELINE, rate, seconds).utilisation
        # A busy engine works in larger batches: near saturation the rate must grow faster than utilisation.
        rate *= utilisation / found if found < 1 else 0.5
    return rate


def _compare(policy: str, rate: float, seconds: float, baseline: LiveRun) -> dict[str, Any]:
    live = baseline if policy == BASELINE else _live(policy, rate, seconds)
    workload = live.traced.workload(chains(), PRIORITIES, baseline.traced)
    result = simulate(workload, policy, sources=SOURCES.value)
    classes = {}
    for name, mean in _means(live).items():
        simulated = result.classes[name].mean_ms or 0.0
        classes[name] = {
            "live_ms": round(mean, 3),
            "simulated_ms": round(simulated, 3),
            "apart": round(simulated / mean - 1, 3),
        }
    return {
        "utilisation": round(live.utilisation, 3),
        "simulated_utilisation": round(result.utilisation, 3),
        "classes": classes,
        "agree": all(abs(one["apart"]) <= TOLERANCE for one in classes.values()),
    }


def _live(policy: str, rate: float, seconds: float) -> LiveRun:
    return live_run(chains(), PRIORITIES, policy, rate, seconds)


def _means(live: LiveRun) -> dict[str, float]:
    """Return the mean latency by class, in milliseconds."""
    means = {}
    for class_name in PRIORITIES:
        known = [live.latencies[query.name] for query in chains() if query.class_name == class_name]
        means[class_name] = sum(one.total for one in known) / max(sum(one.count for one in known), 1) / 1e6
    return means


def _rows(metrics: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for utilisation, policies in metrics.items():
        for policy, one in policies.items():
            if isinstance(one, dict):
                for name, metric in one["classes"].items():
                    yield (
                        f"{utilisation} {policy} {name}",
                        shown(metric["live_ms"], ".3f"),
                        shown(metric["simulated_ms"], ".3f"),
                        shown(metric["apart"], "+.0%"),
                    )


def _text(metrics: Mapping[str, Any]) -> str:
    return text_table(
        ("utilisation, policy, class", "live, ms", "simulated, ms", "apart"), list(_rows(metrics))
    )
