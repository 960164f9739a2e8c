"""Targets under bursts: a critical class beside one whose load arrives in bursts, with and without
optimizer.

Both runs start alike: a policy without classes (`fifo`), three critical queries with a latency target, and
many queries of a class that allows loss. Its stream is fed at a share of the engine's capacity, which is
measured in the same run, and at four times that in bursts. A period of one second counts as kept if the rows
that fell due in it were answered within the target, for each critical query, as seen by a subscriber; the
optimizer's own metrics are not used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from bench.load.answer_times import FedStream
from bench.load.capacity import class_capacity
from bench.load.class_run import ClassRun, DeployedClass, deployed, progress, run_classes
from bench.load.expected import ExpectedAnswers
from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess, server
from bench.outcome import Outcome, text_table
from bench.workload.class_queries import READERS, class_queries

PRIORITIES = {"critical": 6, "low": 1}
POLICY = "fifo"
TARGET_MS = 1000.0
PERCENTILE = 95
TOLERANCE = 0.1
CRITICAL_QUERIES = 3
QOS: dict[str, dict[str, Any]] = {
    "critical": {"latency": {f"p{PERCENTILE}": f"{TARGET_MS:g}ms", "tolerance": f"{TOLERANCE:.0%}"}},
    "low": {"max_loss": "50%"},
}
_CRITICAL_SHARE, _LOW_SHARE, _BURST = 0.05, 0.35, 4
_BURST_S, _EVERY_S, _FIRST_S = 30.0, 60.0, 20.0
_TICKS = {"critical": 0.002, "low": 0.01}  # seconds between two frames
_SEARCH_S = 3.0
_POLL = 0.6
_PATIENCE = 180.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=180.0, help="length of a run (180)")
    parser.add_argument("--policy", default=POLICY, help=f"that both runs start with ({POLICY})")
    parser.add_argument("--capacity", type=float, help="tuples/s, instead of a search")


def run(options: argparse.Namespace) -> Outcome:
    """Run without the optimizer, then with it."""
    capacity = options.capacity or class_capacity(_SEARCH_S, policy=options.policy)
    rates = {
        "critical": ((_CRITICAL_SHARE * capacity, options.seconds),),
        "low": _bursts(_LOW_SHARE * capacity, options.seconds),
    }
    schedules = {name: Schedule(pieces, _TICKS[name]) for name, pieces in rates.items()}
    expected = ExpectedAnswers(schedules["critical"], class_queries("readings")[:CRITICAL_QUERIES])
    off = _run(options.policy, schedules, expected, optimizing=False)
    on = _run(options.policy, schedules, expected, optimizing=True)
    metrics = {"on": on, "off": off, "capacity_tuples_per_s": round(capacity)}
    correct = all(metric["lost"] == 0 for metric in (on, off))
    return Outcome(metrics, _text(metrics), correct)


def _bursts(rate: float, seconds: float) -> tuple[tuple[float, float], ...]:
    """Return the rates of the low class, and for how many seconds each, cut to the length of the run."""
    pieces, at = [(rate, _FIRST_S)], _FIRST_S
    while at < seconds:
        pieces += [(_BURST * rate, _BURST_S), (rate, _EVERY_S - _BURST_S)]
        at += _EVERY_S
    kept, left = [], seconds
    for piece, length in pieces:
        if left > 0:
            kept.append((piece, min(length, left)))
        left -= length
    return tuple(kept)


def _run(
    policy: str, schedules: Mapping[str, Schedule], expected: ExpectedAnswers, *, optimizing: bool
) -> dict[str, Any]:
    with server() as running, ExitStack() as open_:
        running.put("/v1/scheduler", {"policy": policy})
        running.put("/v1/optimizer", {"enabled": optimizing})
        classes = {}
        for name, priority in PRIORITIES.items():
            running.put(f"/v1/classes/{name}", {"name": name, "priority": priority})
            queries = class_queries(name)[: CRITICAL_QUERIES if name == "critical" else None]
            classes[name] = open_.enter_context(deployed(running, name, name, queries, QOS[name]))
        run = run_classes(
            running,
            {classes[name]: schedule for name, schedule in schedules.items()},
            expected.counts(classes["critical"].ids),
            encode_first=False,
        )
        return _measured(running, run, classes, schedules["critical"], expected)


def _measured(
    running: ServerProcess,
    run: ClassRun,
    classes: Mapping[str, DeployedClass],
    schedule: Schedule,
    expected: ExpectedAnswers,
) -> dict[str, Any]:
    lost = _unread(running, run, classes["low"].ids)
    lost += expected.lost(running, classes["critical"].ids, run.received)
    late = _late_periods(run, classes["critical"], schedule)
    decisions = running.http.get("/v1/optimizer/decisions").json()["items"]
    return {
        "kept": round(1 - late.mean(), 4),
        "late_periods": np.flatnonzero(late).tolist(),
        "shed": _shed(running, classes["low"].ids),
        "actions": len(decisions),
        "decisions": [_told(one) for one in decisions],
        "lost": lost,
        "rows": {name: sent.rows for name, sent in run.sent.items()},
    }


def _unread(running: ServerProcess, run: ClassRun, low: Sequence[str]) -> int:
    """Wait until the low class has read or shed all; returns how many of its rows are missing."""
    until = time.monotonic() + _PATIENCE
    while True:
        missing = run.before["low"].rows_in + run.sent["low"].rows * READERS
        missing -= progress(running)["low"].rows_in + _shed(running, low)
        if not missing or time.monotonic() > until:
            return abs(missing)
        time.sleep(_POLL)


def _late_periods(run: ClassRun, critical: DeployedClass, schedule: Schedule) -> np.ndarray:
    """Return for each second whether a query answered the rows that were due in it too late."""
    late = np.zeros(int(schedule.seconds), dtype=bool)
    fed = FedStream(schedule, run.begin, run.sent["critical"])
    for query, id_ in zip(critical.queries, critical.ids, strict=True):
        rows = fed.completing_rows(query, run.received[id_])
        taken = (run.received[id_].times - fed.due_ns(rows)) / 1e6
        periods = schedule.dues[rows] // 1_000_000
        for period in range(len(late)):
            inside = taken[periods == period]
            if len(inside) and np.percentile(inside, PERCENTILE) > TARGET_MS * (1 + TOLERANCE):
                late[period] = True
    return late


def _shed(running: ServerProcess, queries: Sequence[object]) -> int:
    """Return how many rows these queries have shed in all."""
    reports = (running.http.get(f"/v1/queries/{query}/qos").json() for query in queries)
    return sum(int(report["shed"]["rows"]) for report in reports)


def _told(decision: dict[str, Any]) -> str:
    return f"{decision['at'][11:19]} {decision['what']}: {decision['outcome']}"


def _text(metrics: dict[str, Any]) -> str:
    keys = ("kept", "shed", "actions", "lost")
    rows = [(key, *(str(metrics[run][key]) for run in ("off", "on"))) for key in keys]
    return "\n".join([text_table(("metric", "off", "on"), rows), *metrics["on"]["decisions"]])
