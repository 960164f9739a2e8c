"""Longest steps: how long operators with much state keep the processor between two looks at the scheduler.

An engine is driven by hand over queries with many groups, large joins and long windows. Reported is processor
time of the thread, not time on the clock, so that a busy machine does not matter; page faults count.
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.outcome import Outcome, text_table
from bench.scheduling.step_cases import CASES, Case
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER
from mavstream_server.core.heap import freeze_heap
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.allocator import keep_freed_memory
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.engine.states import QueryState
from mavstream_server.tables.stored import OpenTables

_LONG_MS = 10.0


class Longest(NamedTuple):
    """The longest step of a run, and what it did."""

    milliseconds: float
    operator: str
    own_milliseconds: float
    """Of that operator alone, without the operators that it called."""
    faults: int
    """Page faults in the step."""
    collected: bool
    """Whether Python's garbage collector ran in the step."""


class StepWatch:
    """Measures the steps of an engine, and which operator took most of each."""

    def __init__(self, engine: Engine, query: RunningQuery) -> None:
        self._engine = engine
        self._own: defaultdict[str, float] = defaultdict(float)
        self._inner = 0.0
        self._collected = False
        self.times: list[float] = []
        self.longest = Longest(0.0, "none", 0.0, 0, False)
        for operator in query.network.operators.values():
            for name in ("begin", "proceed", "read"):
                if (call := getattr(operator, name, None)) is not None:
                    setattr(operator, name, self._measured(operator.name, call))

    def _measured(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            begin = time.thread_time()
            try:
                return call(*arguments)
            finally:
                elapsed = time.thread_time() - begin
                self._own[name] += elapsed - self._inner
                self._inner = outer + elapsed

        return measured

    def _gc(self, phase: str, info: dict[str, int]) -> None:
        self._collected = True

    def run(self) -> None:
        """Step until there is nothing to do."""
        gc.callbacks.append(self._gc)
        try:
            while self._step():
                pass
        finally:
            gc.callbacks.remove(self._gc)

    def _step(self) -> bool:
        self._own.clear()
        self._collected = False
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        begin = time.thread_time()
        busy = self._engine.step()
        elapsed = 1e3 * (time.thread_time() - begin)
        self.times.append(elapsed)
        if elapsed > self.longest.milliseconds:
            faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults
            name, own = max(self._own.items(), key=lambda item: item[1], default=("engine", 0.0))
            self.longest = Longest(elapsed, name, 1e3 * own, faults, self._collected)
        return busy

    def percentile(self, share: float) -> float:
        """Return the time (ms) that this share of the steps did not exceed."""
        return sorted(self.times)[int(share * (len(self.times) - 1))]


def measure(case: Case, rows: int, directory: Path) -> tuple[StepWatch, int, float]:
    """Run a case; returns its steps, its answers and the processor time of all (s)."""
    inputs = case.make(directory, rows)
    tables = {table.name: table.schema for table in inputs.tables}
    typed = infer(
        Plan.parse({"root": inputs.root, "nodes": inputs.nodes}),
        {stream.name: stream.shape for stream in inputs.streams},
        tables,
    )
    stored = OpenTables(inputs.tables[0].path.parent) if tables else None
    engine = Engine(policy=DEFAULT_SCHEDULER.policy, options=DEFAULT_SCHEDULER.options, tables=stored)
    for stream in inputs.streams:
        engine.attach(stream.name, stream.reader)
    sink = CountingSink()
    query = engine.start(QueryRequest("steps", typed, earliest=True), sink)
    watch = StepWatch(engine, query)
    keep_freed_memory()  # this and the next as an engine process does
    freeze_heap()
    begin = time.thread_time()
    watch.run()
    if query.state is not QueryState.FINISHED:
        raise RuntimeError(f"the query is {query.state.value} instead of finished: {query.reason}")
    return watch, sink.offset, time.thread_time() - begin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmark."""
    parser.add_argument("--rows", type=int, default=600_000, help="rows, and as many groups (600000)")
    parser.add_argument("--case", action="append", choices=list(CASES), help="a case, repeatable (all)")


def run(options: argparse.Namespace) -> Outcome:
    """Measure the cases."""
    metrics: dict[str, dict[str, Any]] = {}
    for name in options.case or CASES:
        with tempfile.TemporaryDirectory() as directory:
            watch, answers, seconds = measure(CASES[name], options.rows, Path(directory))
        longest = watch.longest
        metrics[name] = {
            "longest_ms": longest.milliseconds,
            "p99_ms": watch.percentile(0.99),
            "over_10_ms": sum(each > _LONG_MS for each in watch.times),
            "operator": longest.operator,
            "operator_ms": longest.own_milliseconds,
            "page_faults": longest.faults,
            "collected": longest.collected,
            "steps": len(watch.times),
            "answers": answers,
            "seconds": seconds,
        }
    return Outcome(metrics, text_table(("case", *_SHOWN), [_line(*case) for case in metrics.items()]))


_SHOWN: dict[str, Callable[[dict[str, Any]], str]] = {
    "longest ms": lambda row: f"{row['longest_ms']:.1f}",
    "p99 ms": lambda row: f"{row['p99_ms']:.1f}",
    "over 10 ms": lambda row: str(row["over_10_ms"]),
    "operator": lambda row: row["operator"],
    "its ms": lambda row: f"{row['operator_ms']:.1f}",
    "faults": lambda row: str(row["page_faults"]),
    "gc": lambda row: "yes" if row["collected"] else "-",
    "answers": lambda row: str(row["answers"]),
    "s": lambda row: f"{row['seconds']:.2f}",
}


def _line(name: str, row: dict[str, Any]) -> list[str]:
    return [name, *(form(row) for form in _SHOWN.values())]
