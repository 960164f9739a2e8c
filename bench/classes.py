"""Response times of classes side by side: the CQC paper's workloads, live, under four policies.

The engine runs in this process; another one writes the tuples into the streams' logs, at Poisson numbers per
tick. The load is relative to the highest rate that is sustained under `rr`, found by halving in the same run.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.class_workloads import SCHEMA, WORKLOADS, Workload
from bench.data import readings
from bench.outcome import Outcome, text_table
from mavstream_server.core.metrics import Latency
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import QueryRequest
from mavstream_server.engine.reporting import latency_of
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.log import LogDescription, LogReader, LogWriter

POLICIES = ("rr", "hr", "cqc", "abd")
LOAD = 0.95
_TICK = 0.005  # seconds between two writings
_LEAST_RATE = 12_500.0
_HALVINGS = 4  # the highest rate is found within 5 %
_SETTLED = 0.05  # share of the input that may still be waiting at the end of a sustained rate
_KEPT_ROWS = 1 << 17
_ROOM = 4 << 30  # bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a timed run (10)")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="instead of A, B and C")
    parser.add_argument("--policy", action="append", help="instead of rr, hr, cqc and abd")
    parser.add_argument("--rate", type=float, help="tuples/s of each stream, instead of a search")
    parser.add_argument("--load", type=float, default=LOAD, help="of the highest rate under rr (0.95)")


def run(options: argparse.Namespace) -> Outcome:
    """Find the rate of each workload, then run every policy at the load."""
    metrics: dict[str, Any] = {}
    for name in options.workload or WORKLOADS:
        workload = WORKLOADS[name]
        rate = options.rate or options.load * _highest_rate(workload, options.seconds / 3)
        metrics[name] = {"tuples_per_s_per_stream": round(rate)} | {
            policy: _measure(workload, policy, rate, options.seconds).shown()
            for policy in options.policy or POLICIES
        }
    complete = all(
        metrics[name][policy]["lost"] == 0
        for name in metrics
        for policy in metrics[name]
        if policy != "tuples_per_s_per_stream"
    )
    return Outcome(metrics, _text(metrics), complete)


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of a run."""

    classes: dict[str, Latency]
    behind: dict[str, float]
    """Seconds of input that a class had not read when the feeding ended."""
    busy: float
    lost: int

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
        return {**classes, "busy": round(self.busy, 3), "lost": self.lost}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _highest_rate(workload: Workload, seconds: float) -> float:
    def sustained(rate: float) -> bool:
        return max(_measure(workload, "rr", rate, seconds).behind.values()) < _SETTLED * seconds

    low = _LEAST_RATE
    while sustained(2 * low):
        low *= 2
    high = 2 * low
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if sustained(middle) else (low, middle)
    return low


def _measure(workload: Workload, policy: str, rate: float, seconds: float) -> Run:
    with TemporaryDirectory(prefix="mavstream-bench-", dir=memory()) as place:
        queries = workload.queries()
        streams = [stream for query in queries for stream in query.streams]
        with feeder(Path(place), streams, rate, seconds) as feeding:
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
    return Run(classes, behind, busy / 1e9 / elapsed, lost)


def memory() -> Path | None:
    """Return a directory in memory if one has room, so that disks do not affect the comparison.

    At these rates a run writes a gigabyte, and a disk that cannot keep up stops writer and engine alike.
    """
    place = Path("/dev/shm")
    return place if place.is_dir() and disk_usage(place).free > _ROOM else None


class Feeder:
    """The feeding process and the memory that it shares with this one."""

    def __init__(self, place: Path, streams: Sequence[str], rate: float, seconds: float, tick: float) -> None:
        context = get_context("spawn")
        self._made, self._go = context.Event(), context.Event()
        # Plain shared memory, since one of the values is read between any two slices.
        self._done, self._rows = context.RawValue("b", 0), context.RawValue("q", 0)
        arguments = (place, streams, rate, seconds, tick, self._made, self._go, self._done, self._rows)
        self._process = context.Process(target=_write, args=arguments, daemon=True)
        self._process.start()
        self._made.wait(60)

    def start(self) -> None:
        """Let it begin."""
        self._go.set()

    @property
    def writing(self) -> bool:
        """Whether it is not done yet."""
        return not self._done.value

    def written(self) -> int:
        """Return how many rows it has written in all."""
        return int(self._rows.value)

    def close(self) -> None:
        """Wait for the process to end."""
        self._go.set()
        self._process.join(60)


@contextmanager
def feeder(
    place: Path, streams: Sequence[str], rate: float, seconds: float, tick: float = _TICK
) -> Iterator[Feeder]:
    """Have a process write Poisson numbers of tuples into logs, at every tick (s)."""
    made = Feeder(place, streams, rate, seconds, tick)
    try:
        yield made
    finally:
        made.close()


def _write(
    place: Path,
    streams: Sequence[str],
    rate: float,
    seconds: float,
    tick: float,
    made: Any,
    go: Any,
    done: Any,
    rows: Any,
) -> None:
    random = np.random.default_rng(1)
    columns = {name: column for name, column in readings(_KEPT_ROWS, seed=2).items() if name in SCHEMA.names}
    writers = [LogWriter(place / stream, LogDescription(SCHEMA)) for stream in streams]
    made.set()
    go.wait()
    begin = last = time.perf_counter()
    at = [int(random.integers(0, _KEPT_ROWS // 2)) for _ in streams]
    total = 0
    while last - begin < seconds:
        now = time.perf_counter()
        counts = random.poisson(rate * (now - last), len(streams))
        last = now
        for place_, (writer, count) in enumerate(zip(writers, counts.tolist(), strict=True)):
            if not count:
                continue
            if at[place_] + count > _KEPT_ROWS:
                at[place_] = 0
            start = at[place_]
            frame = {name: column.slice(start, start + count) for name, column in columns.items()}
            writer.append(frame, count, time.time_ns(), producer=1)
            at[place_] += count
            total += count
        time.sleep(max(0.0, now + tick - time.perf_counter()))
    rows.value = total
    done.value = 1
    for writer in writers:
        writer.close()


def _text(metrics: dict[str, Any]) -> str:
    rows = []
    for workload, policies in metrics.items():
        for policy, shown in policies.items():
            if not isinstance(shown, dict):
                continue
            for name, metric in shown.items():
                if isinstance(metric, dict):
                    rows.append(
                        (f"{workload} {policy} {name}", *map(str, metric.values()), str(shown["busy"]))
                    )
    return text_table(("workload, policy, class", "mean ms", "p99 ms", "behind s", "busy"), rows)
