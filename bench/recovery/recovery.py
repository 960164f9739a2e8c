"""Recovery of queries with much state: after a kill, after an orderly stop, and what checkpoints cost.

A real server with joins on several streams and a class of important selects; producers and the subscriber are
processes of their own. All answers are compared with DuckDB's before a time is reported: none may be missing,
repeated or wrong, although the engine is killed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from bench.load.schedule import Schedule
from bench.outcome import Outcome
from bench.recovery.cost import OFF, cost
from bench.recovery.kill import kill_and_restart
from bench.recovery.report import medians, text
from bench.recovery.stall import stall
from bench.recovery.workload import IMPORTANT, MOST_JOINS, ROW_BYTES, SELECTS, Load, joins, selects

PARTS = ("kill", "cost", "stall")
_FILL_RATE = 2_000.0
"""Tuples/s of a stream while state is built up."""
_RATE = 250.0
"""Tuples/s of a stream under load."""
_IMPORTANT_RATE = 1_000.0
_BURST_S = 0.5
_TICK, _IMPORTANT_TICK = 0.05, 0.002


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--part", action="append", choices=PARTS, help="instead of all parts")
    parser.add_argument("--queries", type=int, default=300, help="selects included (300)")
    parser.add_argument("--streams", type=int, default=10, help="of the joins (10)")
    parser.add_argument("--state-mb", type=float, default=500.0, help="of all queries together (500)")
    parser.add_argument(
        "--large-mb", type=float, default=200.0, help="state of the one query of `stall` (200)"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="under steady load (15)")
    parser.add_argument("--interval", default="5s", help="between two checkpoints (5s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the medians count (3)")


def run(options: argparse.Namespace) -> Outcome:
    """Measure the parts."""
    parts = options.part or PARTS
    runs = [_once(options, parts) for _ in range(max(options.repeat, 1))]
    metrics = medians(runs)
    return Outcome(metrics, text(metrics), correct=all(_correct(one) for one in runs))


def _once(options: argparse.Namespace, parts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    fill_s = _fill_seconds(options)
    if "kill" in parts:
        loads = _loads(options, ((_FILL_RATE, fill_s), (_RATE, 2 * options.seconds)))
        found["kill"] = kill_and_restart(loads, options.interval, fill_s + options.seconds)
    if "cost" in parts:
        steady = fill_s + options.seconds / 3, fill_s + 4 * options.seconds / 3
        burst = _FILL_RATE * fill_s / 2
        pieces = ((_FILL_RATE, fill_s), (_RATE, 4 * options.seconds / 3), (burst / _BURST_S, _BURST_S))
        loads = _loads(options, pieces)
        found["cost"] = {
            name: cost(loads, interval, steady)
            for name, interval in (("without", OFF), ("with", options.interval))
        }
    if "stall" in parts:
        found["stall"] = stall(options.large_mb, options.seconds)
    return found


def _fill_seconds(options: argparse.Namespace) -> float:
    rows: float = options.state_mb * 1e6 / (options.queries - SELECTS) / ROW_BYTES
    return max(rows / _FILL_RATE, 1.0)


def _loads(options: argparse.Namespace, pieces: tuple[tuple[float, float], ...]) -> list[Load]:
    number, streams = options.queries - SELECTS, options.streams
    if not streams <= number <= MOST_JOINS * streams:
        raise SystemExit(
            f"expected {streams + SELECTS} to {MOST_JOINS * streams + SELECTS} queries on {streams} streams, "
            f"got {options.queries}"
        )
    seconds = sum(seconds for _, seconds in pieces)
    every = [
        Load(
            f"s{n}",
            "default",
            Schedule(pieces, _TICK, seed=n),
            joins(f"s{n}", len(range(n, number, streams))),
        )
        for n in range(streams)
    ]
    important = Schedule.steady(_IMPORTANT_RATE, seconds, _IMPORTANT_TICK, seed=streams)
    return [Load(IMPORTANT, IMPORTANT, important, selects(IMPORTANT)), *every]


def _correct(run: Any) -> bool:
    """Whether nothing was wrong in any part."""
    return all(
        value == 0 if key == "wrong" else not isinstance(value, dict) or _correct(value)
        for key, value in run.items()
    )
