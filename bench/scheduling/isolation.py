"""Class isolation: an important class beside one that is offered twice the capacity, end to end.

A real server; class H (30 queries, a tenth of the capacity) first alone, then beside class N (30 queries,
twice the capacity), on a stream each. The producer of H, the producer of N and the subscriber of H are
processes of their own. The capacity is found in the same run: the highest rate that the queries of a class
sustain under `rr`.

Schedules are fixed and their frames are encoded before they begin. The latency of an answer counts from the
due time of the row that completes it to its receipt, so a row that is sent late is answered late. The answers
of all queries of H are compared with DuckDB's before a time is reported.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from bench.load.answer_times import STAGES, FedStream
from bench.load.capacity import POLICY as BASELINE
from bench.load.capacity import class_capacity
from bench.load.class_run import WARM_UP, ClassRun, DeployedClass, deployed, run_classes, unread
from bench.load.expected import ExpectedAnswers
from bench.load.policies import DEFAULT, chosen_policies
from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess, server
from bench.outcome import Outcome
from bench.scheduling.isolation_report import medians, text

PRIORITIES = {"H": 6, "N": 1}
POLICIES = (DEFAULT, "cqc", "abd", "deadline")
SHARES = {"H": 0.1, "N": 2.0}  # of the capacity
TICKS = {"H": 0.002, "N": 0.01}  # seconds between two frames
_LEAST_SEARCH = 3.0  # seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=_seconds, default=10.0, help="measured of a phase (10)")
    parser.add_argument(
        "--policy", action="append", help=f"besides {BASELINE}, instead of {', '.join(POLICIES)}"
    )
    parser.add_argument("--repeat", type=int, default=5, help="runs, of which the medians count (5)")
    parser.add_argument("--capacity", type=float, help="tuples/s, instead of a search")
    parser.add_argument("--stages", action="store_true", help="also show where the time of H's answers goes")


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"at least 1 second is needed, got {text}")
    return seconds


def run(options: argparse.Namespace) -> Outcome:
    """Measure class H alone and beside N under each policy."""
    with server() as running:
        policies, skipped = chosen_policies(running, (BASELINE, *(options.policy or POLICIES)))
    runs = [_once(options, policies) for _ in range(max(options.repeat, 1))]
    metrics = {**medians(runs), "skipped": skipped}
    return Outcome(metrics, text(metrics), correct=all(_nothing_lost(one) for one in runs))


def _nothing_lost(run: Mapping[str, Any]) -> bool:
    return all(one["lost"] == 0 for one in run["policies"].values())


def _once(options: argparse.Namespace, policies: Mapping[str, Any]) -> dict[str, Any]:
    capacity = options.capacity or class_capacity(max(options.seconds / 3, _LEAST_SEARCH))
    schedules = {
        name: Schedule.steady(share * capacity, WARM_UP + options.seconds, TICKS[name], seed)
        for seed, (name, share) in enumerate(SHARES.items())
    }
    expected = ExpectedAnswers(schedules["H"])
    measured = {
        name: _policy(settings, schedules, expected, options.stages) for name, settings in policies.items()
    }
    most = measured[BASELINE]["n_tuples_per_s"]
    for one in measured.values():
        one["n_of_rr"] = round(one["n_tuples_per_s"] / max(most, 1), 3)
    return {"capacity_tuples_per_s": round(capacity), "policies": measured}


def _policy(
    settings: Any, schedules: Mapping[str, Schedule], expected: ExpectedAnswers, stages: bool
) -> dict[str, Any]:
    with server() as running:
        running.put("/v1/scheduler", settings)
        for name, priority in PRIORITIES.items():
            running.put(f"/v1/classes/{name}", {"name": name, "priority": priority})
        alone = _phase(running, "alone", {"H": schedules["H"]}, expected, stages)
        beside = _phase(running, "beside", schedules, expected, stages)
    read, answered = beside.run.rates("N")
    return {
        "policy": settings["policy"],
        "alone": alone.shown(),
        "beside": beside.shown(),
        "ratio": round(alone.ratio(beside), 2),
        "n_tuples_per_s": round(read),
        "n_results_per_s": round(answered),
        "lost": alone.lost + beside.lost,
    }


class Phase(NamedTuple):
    """What was measured of class H in one phase."""

    run: ClassRun
    latencies: dict[str, np.ndarray]
    """Milliseconds from due time to receipt of each answer, by kind of query."""
    stages: np.ndarray | None
    lost: int

    def ratio(self, beside: Phase) -> float:
        """Return the p99 beside another class, relative to this one."""
        return _percentile(beside.all_latencies(), 99) / _percentile(self.all_latencies(), 99)

    def all_latencies(self) -> np.ndarray:
        """Return the latencies of all answers."""
        return np.concatenate(list(self.latencies.values()))

    def shown(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        metrics: dict[str, Any] = {
            **_percentiles(self.all_latencies()),
            "answers": len(self.all_latencies()),
            "by_kind": {kind: _percentiles(taken) for kind, taken in self.latencies.items()},
            "send_lag_ms": {name: _percentiles(sent.lags) for name, sent in self.run.sent.items()},
            "held_by_credit_s": {name: round(sent.held_s, 2) for name, sent in self.run.sent.items()},
            "server_cores": round(self.run.server_cores, 2),
            "subscriber_cores": round(self.run.subscriber_cores, 3),
            "producer_cores": {name: round(sent.cores, 3) for name, sent in self.run.sent.items()},
        }
        if self.stages is not None:
            metrics["stages_ms"] = {
                name: _percentiles(taken) for name, taken in zip(STAGES, self.stages, strict=True)
            }
        return metrics


def _phase(
    running: ServerProcess,
    phase: str,
    schedules: Mapping[str, Schedule],
    expected: ExpectedAnswers,
    stages: bool,
) -> Phase:
    with ExitStack() as open_:
        classes = {
            name: open_.enter_context(deployed(running, name, f"{phase}_{name}")) for name in schedules
        }
        important = classes["H"]
        run = run_classes(
            running,
            {classes[name]: schedule for name, schedule in schedules.items()},
            expected.counts(important.ids),
        )
        lost = sum(abs(unread(running, name, run.before[name], sent.rows)) for name, sent in run.sent.items())
        lost += expected.lost(running, important.ids, run.received)
        fed = FedStream(schedules["H"], run.begin, run.sent["H"])
        stage_times = _stages(running, fed, run, important) if stages else None
        return Phase(run, _latencies(fed, run, important), stage_times, lost)


def _latencies(fed: FedStream, run: ClassRun, important: DeployedClass) -> dict[str, np.ndarray]:
    by_kind: dict[str, list[np.ndarray]] = {}
    for query, id_ in zip(important.queries, important.ids, strict=True):
        by_kind.setdefault(query.kind, []).append(fed.latencies(query, run.received[id_]))
    return {kind: np.concatenate(taken) for kind, taken in by_kind.items()}


def _stages(running: ServerProcess, fed: FedStream, run: ClassRun, important: DeployedClass) -> np.ndarray:
    stream, results = running.data / "streams" / important.stream, running.data / "results"
    return np.concatenate(
        [
            fed.stages(query, run.received[id_], stream, results / id_)
            for query, id_ in zip(important.queries, important.ids, strict=True)
        ],
        axis=1,
    )


def _percentiles(values: np.ndarray) -> dict[str, float | None]:
    return {f"p{p}": round(_percentile(values, p), 3) if len(values) else None for p in (50, 99)}


def _percentile(values: np.ndarray, p: float) -> float:
    return float(np.percentile(values, p))
