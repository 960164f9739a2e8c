"""Latency targets kept under several policies, live and simulated, at loads around the capacity.

Twelve queries have targets from 5 ms to 2 s. The engine runs in this process, another one writes Poisson
arrivals into the logs. The load is relative to the highest rate that is sustained under `rr`, found in the
same run. An answer keeps its target if it is there in time after the arrival of its row; what is waiting when
the input ends is answered, and counts. The simulator runs the same policy with the arrivals and the costs of
the live run (see `bench.simulation.fitting`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.capacity import POLICY as BASELINE
from bench.load.capacity import SETTLED, highest_rate
from bench.load.policies import registered_policies
from bench.outcome import Outcome, text_table
from bench.simulation.deadline_workload import PRIORITIES, deadline_queries, least_temperature, targets_ms
from bench.simulation.live_query import LiveQuery
from bench.simulation.live_run import SOURCES, LiveRun, live_run
from mavstream_server.columns.batch import Batch
from mavstream_server.log import LogReader, gather
from mavstream_server.simulation import simulate

POLICIES = ("rr", "hr", "cqc", "abd", "deadline")
LOADS = (0.7, 0.8, 0.9, 1.0, 1.1)
PERCENTILE = 99
_LEAST_RATE = 1000.0  # tuples/s of each stream
_LEAST_SEARCH = 1.0  # seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a live run (4)")
    parser.add_argument("--policy", action="append", help=f"instead of {', '.join(POLICIES)}")
    parser.add_argument(
        "--load", type=float, action="append", help=f"instead of {', '.join(map(str, LOADS))}"
    )
    parser.add_argument("--rate", type=float, help="the capacity in tuples/s of each stream, not searched")


def run(options: argparse.Namespace) -> Outcome:
    """Find the capacity, then run every policy live and simulated at each load."""
    policies, skipped = registered_policies(options.policy or POLICIES)
    seconds = options.seconds
    capacity = options.rate or highest_rate(
        lambda rate: _live(BASELINE, rate, max(seconds / 3, _LEAST_SEARCH))[0].behind < SETTLED, _LEAST_RATE
    )
    loads = {str(load): _at_load(policies, load * capacity, seconds) for load in options.load or LOADS}
    metrics = {
        "tuples_per_s_per_stream": round(capacity),
        "targets_ms": targets_ms(),
        "loads": loads,
        "skipped": skipped,
    }
    correct = all(one["live"]["lost"] == 0 for load in loads.values() for one in load.values())
    return Outcome(metrics, _text(metrics), correct)


def _at_load(policies: list[str], rate: float, seconds: float) -> dict[str, Any]:
    baseline = _live(BASELINE, rate, seconds)
    shown = {}
    for policy in policies:
        live, kept = baseline if policy == BASELINE else _live(policy, rate, seconds)
        shown[policy] = {
            "live": {**_summary(kept), "behind": round(live.behind, 4), "lost": live.lost},
            "simulated": _summary(_simulated(policy, live, baseline[0])),
        }
    return shown


class TargetSink:
    """Counts answers, and those within the target."""

    def __init__(self, target_us: int) -> None:
        self._target = target_us * 1000
        self.offset = 0
        self.kept = 0

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        """Count the rows of a batch."""
        self.offset += batch.size
        self.kept += int(np.count_nonzero(now - batch.arrival <= self._target))

    def restart(self, offset: int) -> None:
        """Continue at an offset."""
        self.offset = offset

    @property
    def share(self) -> float:
        """The share of answers within the target."""
        return self.kept / self.offset if self.offset else 1.0


def _live(policy: str, rate: float, seconds: float) -> tuple[LiveRun, dict[str, float]]:
    queries = deadline_queries()
    sinks = {query.name: TargetSink(query.latency_target or 0) for query in queries}
    live = live_run(queries, PRIORITIES, policy, rate, seconds, lambda query: sinks[query.name], _expected)
    return live, {name: sink.share for name, sink in sinks.items()}


def _expected(query: LiveQuery, logs: Path) -> int:
    """Return the number of answers to a query, given the rows of its stream."""
    number = [one.name for one in deadline_queries()].index(query.name)
    (stream,) = query.streams
    spans = [span for span in LogReader(logs / stream).cursor(0).take(1 << 40, 1 << 40) if span[2] > span[1]]
    if not spans:
        return 0
    temperatures = gather(spans, ["temperature"])["temperature"].values
    return int(np.count_nonzero(temperatures >= least_temperature(number)))


def _simulated(policy: str, live: LiveRun, baseline: LiveRun) -> dict[str, float]:
    workload = live.traced.workload(deadline_queries(), PRIORITIES, baseline.traced)
    result = simulate(workload, policy, sources=SOURCES.value)
    targets = {query.name: (query.latency_target or 0) * 1000 for query in deadline_queries()}
    responses = {name: result.queries[name].responses for name in targets}
    return {
        name: float((taken <= targets[name]).mean()) if taken.size else 1.0
        for name, taken in responses.items()
    }


def _summary(kept: Mapping[str, float]) -> dict[str, Any]:
    """Return the mean share of answers in time, and the share of queries whose p99 is within the target."""
    shares = np.array(list(kept.values()))
    return {
        "answers": round(float(shares.mean()), 4),
        "queries": round(float((shares >= PERCENTILE / 100).mean()), 4),
        "by_query": {name: round(share, 4) for name, share in kept.items()},
    }


def _text(metrics: Mapping[str, Any]) -> str:
    header = ("load, policy", "answers", "simulated", "queries", "simulated", "behind", "lost")
    lines = [
        f"capacity: {metrics['tuples_per_s_per_stream']:,} tuples/s of each stream under {BASELINE}",
        f"answers: share within the target, mean of the queries; queries: share with p{PERCENTILE} within it",
        text_table(header, list(_rows(metrics["loads"]))),
        *metrics["skipped"],
    ]
    return "\n\n".join(lines)


def _rows(loads: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for load, policies in loads.items():
        for policy, one in policies.items():
            live, simulated = one["live"], one["simulated"]
            yield (
                f"{load} {policy}",
                *(f"{part[key]:.1%}" for key in ("answers", "queries") for part in (live, simulated)),
                f"{live['behind']:.1%}",
                str(live["lost"]),
            )
