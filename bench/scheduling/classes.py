"""Response times of classes side by side: the CQC paper's workloads, live, under several policies.

The engine runs in this process; another one writes the tuples into the streams' logs, at Poisson numbers per
tick. The load is relative to the highest rate that is sustained under `rr`, found by halving in the same run.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.load.capacity import POLICY as BASELINE
from bench.load.capacity import SETTLED, highest_rate
from bench.load.log_feeder import log_feeder, memory_directory
from bench.load.policies import registered_policies
from bench.outcome import Outcome, text_table
from bench.workload.class_workloads import WORKLOADS, Workload
from mavstream_server.core.metrics import Latency
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.reporting import latency_of
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.log import LogReader

POLICIES = ("rr", "hr", "cqc", "abd", "deadline")
LOAD = 0.95
_LEAST_RATE = 12_500.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a timed run (10)")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="instead of A, B and C")
    parser.add_argument("--policy", action="append", help=f"instead of {', '.join(POLICIES)}")
    parser.add_argument("--rate", type=float, help="tuples/s of each stream, instead of a search")
    parser.add_argument("--load", type=float, default=LOAD, help="of the highest rate under rr (0.95)")


def run(options: argparse.Namespace) -> Outcome:
    """Find the rate of each workload, then run every policy at the load."""
    metrics: dict[str, Any] = {}
    policies, skipped = registered_policies(options.policy or POLICIES)
    for name in options.workload or WORKLOADS:
        workload = WORKLOADS[name]
        rate = options.rate or options.load * _highest_rate(workload, options.seconds / 3)
        metrics[name] = {"tuples_per_s_per_stream": round(rate)} | {
            policy: _measure(workload, policy, rate, options.seconds).shown() for policy in policies
        }
    complete = all(
        metrics[name][policy]["lost"] == 0
        for name in metrics
        for policy in metrics[name]
        if policy != "tuples_per_s_per_stream"
    )
    return Outcome(metrics, "\n".join([_text(metrics), *skipped]), complete)


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of a run."""

    classes: dict[str, Latency]
    behind: dict[str, float]
    """Seconds of input that a class had not read when the feeding ended."""
    busy: float
    lost: int
    seconds: float
    """How long the classes were fed."""

    def falling_behind(self) -> list[str]:
        """Return the classes that did not keep up."""
        return [name for name, behind in self.behind.items() if behind >= SETTLED * self.seconds]

    def shown(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        classes = {
            name: {
                "mean_ms": _rounded(latency.mean_ms),
                "p99_ms": _rounded(latency.percentile_ms(99)),
                "behind_s": round(self.behind[name], 3),
            }
            for name, latency in self.classes.items()
        }
        return {
            **classes,
            "falls_behind": self.falling_behind(),
            "busy": round(self.busy, 3),
            "lost": self.lost,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _highest_rate(workload: Workload, seconds: float) -> float:
    def sustained(rate: float) -> bool:
        return not _measure(workload, BASELINE, rate, seconds).falling_behind()

    return highest_rate(sustained, _LEAST_RATE)


def _measure(workload: Workload, policy: str, rate: float, seconds: float) -> Run:
    with TemporaryDirectory(prefix="mavstream-bench-", dir=memory_directory()) as place:
        queries = workload.queries()
        streams = [stream for query in queries for stream in query.streams]
        with log_feeder(Path(place), streams, rate, seconds) as feeding:
            engine = Engine(policy=policy)
            for stream in streams:
                engine.attach(stream, LogReader(Path(place) / stream))
            for class_name, priority in workload.priorities.items():
                engine.set_class(class_name, priority)
            running = {
                query.name: engine.start(
                    QueryRequest(query.name, query.plan, query.class_name), CountingSink()
                )
                for query in queries
            }
            # As the engine's own process does when it starts.
            gc.collect()
            gc.freeze()
            feeding.start()
            begin = time.perf_counter()
            while feeding.writing:
                if not engine.step():
                    time.sleep(0.0001)
            elapsed, busy = time.perf_counter() - begin, engine.loop.busy
            behind = dict.fromkeys(workload.priorities, 0.0)
            for query in running.values():
                rows = max(source.waiting_rows for source in query.network.sources)
                behind[query.class_name] = max(behind[query.class_name], rows / rate)
            # Measured now, because processing the backlog after the input has ended is not part of the load.
            classes = {
                name: Latency.merged(
                    latency_of(query.output.latency) for query in running.values() if query.class_name == name
                )
                for name in workload.priorities
            }
            engine.run()
            gc.unfreeze()
            lost = feeding.written() - sum(query.rows_in for query in running.values())
    return Run(classes, behind, busy / 1e9 / elapsed, lost, seconds)


def _text(metrics: dict[str, Any]) -> str:
    rows = []
    for workload, policies in metrics.items():
        for policy, shown in policies.items():
            if not isinstance(shown, dict):
                continue
            for name, metric in shown.items():
                if isinstance(metric, dict):
                    behind = "yes" if name in shown["falls_behind"] else "no"
                    cells = (*map(str, metric.values()), behind, str(shown["busy"]))
                    rows.append((f"{workload} {policy} {name}", *cells))
    header = ("workload, policy, class", "mean ms", "p99 ms", "behind s", "falls behind", "busy")
    return text_table(header, rows)
