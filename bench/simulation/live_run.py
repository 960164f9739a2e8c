"""A live run for the simulator: an engine in this process, fed through its logs by another one.

The arrivals are taken from the logs and the costs of operators from the engine's trace of the same run, so
that the simulator can run the same policy on both.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.load.log_feeder import log_feeder, memory_directory
from bench.simulation.fitting import fitted_workload, fused_costs, operator_costs
from bench.simulation.live_query import LiveQuery
from mavstream_server.core.latency import LatencyHistogram
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.engine.slices.trace import Trace, TracedSlice
from mavstream_server.log import LogReader, gather_arrivals
from mavstream_server.operators.output import Sink
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.simulation import Workload

SOURCES = SourceService.PER_CLASS
"""How sources are served, live and simulated."""
_TICK = 0.001  # seconds between two writings
_SLICES = 2_000_000


@dataclass(frozen=True, slots=True)
class Traced:
    """What the simulator needs of a live run."""

    slices: list[TracedSlice]
    arrivals: dict[str, list[float]]
    """Seconds, by stream."""
    decision: float
    """Nanoseconds of a slice outside of operators."""

    def workload(
        self, queries: Sequence[LiveQuery], priorities: Mapping[str, int], alone: Traced
    ) -> Workload:
        """Return the workload, given a run of the same queries under a policy that runs single operators."""
        single = operator_costs(alone.slices)
        costs = {**single, **operator_costs(self.slices), **fused_costs(self.slices, single)}
        return fitted_workload(queries, priorities, self.arrivals, costs, self.decision)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The measurements of a live run."""

    latencies: dict[str, LatencyHistogram]
    """By query."""
    utilisation: float
    """Share of the time in which the engine found something to do."""
    behind: float
    """Share of the input that had not been read when the feeding ended."""
    lost: int
    """Rows that were not read even after that, and answers too many or too few."""
    traced: Traced


def live_run(
    queries: Sequence[LiveQuery],
    priorities: Mapping[str, int],
    policy: str,
    rate: float,
    seconds: float,
    sinks: Callable[[LiveQuery], Sink] = lambda _: CountingSink(),
    expected: Callable[[LiveQuery, Path], int] | None = None,
) -> LiveRun:
    """Run queries under a policy, each of their streams at a rate (tuples/s); returns when all is read.

    `expected` returns the number of answers to a query, given the folder of the logs.
    """
    streams = [stream for query in queries for stream in query.streams]
    with (
        TemporaryDirectory(prefix="mavstream-bench-", dir=memory_directory()) as folder,
        log_feeder(Path(folder), streams, rate, seconds, _TICK) as feeding,
    ):
        place = Path(folder)
        engine = Engine(policy=policy, sources=SOURCES)
        engine.loop.trace = trace = Trace(_SLICES)
        for stream in streams:
            engine.attach(stream, LogReader(place / stream))
        for class_name, priority in priorities.items():
            engine.set_class(class_name, priority)
        running = {
            query.name: engine.start(
                QueryRequest(query.name, query.plan, query.class_name, latency_target=query.latency_target),
                sinks(query),
            )
            for query in queries
        }
        # A trace is a long list of small objects, and a garbage collection that visits it takes 0.1 s.
        gc.disable()
        feeding.start()
        begin, working = time.perf_counter_ns(), 0
        wall = time.time_ns()
        while feeding.writing:
            before = time.perf_counter_ns()
            if engine.step():
                working += time.perf_counter_ns() - before
        elapsed = time.perf_counter_ns() - begin
        written, read = feeding.written(), sum(query.rows_in for query in running.values())
        engine.run()
        gc.enable()
        lost = written - sum(query.rows_in for query in running.values())
        if expected is not None:
            lost += sum(abs(expected(query, place) - running[query.name].output.rows) for query in queries)
        decision = max(working - engine.loop.busy, 0) / max(engine.loop.slices, 1)
        arrivals = {stream: _arrivals(place / stream, wall) for stream in streams}
        latencies = {name: query.output.latency for name, query in running.items()}
    behind = 1 - read / max(written, 1)
    traced = Traced(trace.recorded().slices, arrivals, decision)
    return LiveRun(latencies, working / elapsed, behind, lost, traced)


def _arrivals(place: Path, begin: int) -> list[float]:
    """Return the arrival times of the rows of a log, in seconds."""
    spans = LogReader(place).cursor(0).take(1 << 40, 1 << 40)
    found: list[float] = np.maximum((gather_arrivals(spans) - begin) / 1e9, 0.0).tolist()
    return found
