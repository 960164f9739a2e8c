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
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.outcome import Outcome, text_table
from bench.scheduling.step_cases import CASES, Case
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER
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
        self._own: Counter[str] = Counter()
        self._inner = 0.0
        self._collected = False
        self.times: list[float] = []
        self.longest: list[Longest] = []
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
                self._own[name] += elapsed - self._inner  # type: ignore[assignment]
                self._inner = outer + elapsed

        return measured

    def _gc(self, phase: str, info: dict[str, int]) -> None:
        self._collected = True

    def run(self, most: int = 1_000_000_000) -> None:
        """Step until there is nothing to do."""
        gc.callbacks.append(self._gc)
        try:
            for _ in range(most):
                if not self._step():
                    return
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
        if not self.longest or elapsed > self.longest[-1].milliseconds:
            faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults
            name, own = max(self._own.items(), key=lambda item: item[1], default=("engine", 0.0))
            self.longest.append(Longest(elapsed, name, 1e3 * own, faults, self._collected))
        return busy

    def percentile(self, share: float) -> float:
        """Return the time (ms) that this share of the steps did not exceed."""
        return sorted(self.times)[int(share * (len(self.times) - 1))]


def measure(case: Case, rows: int, directory: Path) -> tuple[StepWatch, int, float]:
    """Run a case; returns its steps, its answers and the processor time of all (s)."""
    keep_freed_memory()  # as an engine process does
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
    lines, metrics = [], {}
    for name in options.case or CASES:
        with tempfile.TemporaryDirectory() as directory:
            watch, answers, seconds = measure(CASES[name], options.rows, Path(directory))
        gc.collect()
        long = [each for each in watch.times if each > _LONG_MS]
        longest = watch.longest[-1]
        metrics[name] = {
            "longest_ms": longest.milliseconds,
            "p99_ms": watch.percentile(0.99),
            "over_10_ms": len(long),
            "operator": longest.operator,
            "operator_ms": longest.own_milliseconds,
            "page_faults": longest.faults,
            "collected": longest.collected,
            "steps": len(watch.times),
            "answers": answers,
            "seconds": seconds,
        }
        row = metrics[name]
        lines.append(
            [
                name,
                f"{longest.milliseconds:.1f}",
                f"{row['p99_ms']:.1f}",
                str(len(long)),
                longest.operator,
                f"{longest.own_milliseconds:.1f}",
                str(longest.faults),
                "gc" if longest.collected else "-",
                str(answers),
                f"{seconds:.2f}",
            ]
        )
        print("  ".join(lines[-1]), flush=True) if not options.json else None
    header = ["case", "longest ms", "p99 ms", "over 10 ms", "operator", "its ms", "faults", "gc", "answers", "s"]
    return Outcome(metrics, text_table(header, lines))
