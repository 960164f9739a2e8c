"""Speed of the simulator: tuples through operators per second of real time."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import mavstream_server.scheduling  # noqa: F401 (registers the policies)
from bench.outcome import Outcome, shown, text_table
from mavstream_server.simulation import Result, simulate


class Case(NamedTuple):
    """A workload with the policies that are timed on it."""

    utilisation: float | None
    """Utilisation; None uses that of the workload."""
    seconds: float
    """Of virtual time."""
    policies: tuple[str, ...]


CASES = {
    "A": Case(0.95, 4.0, ("rr", "hr", "fifo", "cqc", "abd")),
    "D": Case(None, 1.0, ("cqc", "abd")),
    "5G_4": Case(None, 1.0, ("mbd", "mrr", "morr", "ml")),
    "3D_6": Case(None, 1.0, ("mbd",)),
    "prb_cost_skew": Case(None, 0.5, ("rb", "prb")),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, of which the fastest counts (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the virtual time (1)")
    parser.add_argument("--workload", action="append", choices=sorted(CASES), help="only these workloads")
    parser.add_argument("--policy", action="append", help="only these policies")


def run(options: argparse.Namespace) -> Outcome:
    """Time every case; a run in which tuples were lost has no metrics and fails the command."""
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    lost = []
    for name, case in CASES.items():
        if options.workload and name not in options.workload:
            continue
        for policy in case.policies:
            if options.policy and policy not in options.policy:
                continue
            best = _fastest(name, case, policy, options)
            if best is None:
                lost.append(f"{name} under {policy}")
                continue
            metrics.setdefault(name, {})[policy] = _metrics(best)
    return Outcome(metrics, _text(metrics, lost), correct=not lost)


def _fastest(name: str, case: Case, policy: str, options: argparse.Namespace) -> Result | None:
    """Return the fastest of several runs; None if tuples were lost."""
    seconds = case.seconds * options.scale
    runs = [
        simulate(name, policy, seconds=seconds, utilisation=case.utilisation)
        for _ in range(max(options.repeat, 1))
    ]
    if not all(_complete(result) for result in runs):
        return None
    return min(runs, key=lambda result: result.wall_s)


def _complete(result: Result) -> bool:
    counts = result.counts
    there = counts.answers + counts.dropped + counts.queued + counts.in_flight
    return counts.answers > 0 and counts.arrived == there


def _metrics(result: Result) -> dict[str, float]:
    return {
        "tuple_steps_per_s": round(result.tuple_steps / result.wall_s),
        "seconds": round(result.wall_s, 4),
        "cpu_seconds": round(result.cpu_s, 4),
        "virtual_seconds": result.seconds,
        "tuple_steps": result.tuple_steps,
        "slices": result.counts.slices,
        "us_per_slice": round(1e6 * result.wall_s / max(result.counts.slices, 1), 2),
    }


def _text(metrics: dict[str, dict[str, dict[str, float]]], lost: list[str]) -> str:
    header = ("workload", "policy", "tuple-steps/s", "seconds", "cpu s", "virtual s", "us per slice")
    rows = [
        (
            name,
            policy,
            shown(one["tuple_steps_per_s"] / 1e6, ".2f") + "M",
            shown(one["seconds"], ".2f"),
            shown(one["cpu_seconds"], ".2f"),
            shown(one["virtual_seconds"], ".1f"),
            shown(one["us_per_slice"], ".1f"),
        )
        for name, policies in metrics.items()
        for policy, one in policies.items()
    ]
    return "\n".join([text_table(header, rows), *(f"tuples were lost: {one}" for one in lost)])
