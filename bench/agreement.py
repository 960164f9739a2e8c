"""Compares the live engine with the simulator: the same queries, arrivals and costs.

The engine runs in this process, another one writes Poisson arrivals into the logs. The costs of operators
are taken from the engine's trace of the same run, and the arrivals from its logs; then the simulator runs
the same policy on both.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from bench.agreement_workload import PRIORITIES, Chain, chains
from bench.classes import feeder, memory
from bench.outcome import Outcome, shown, text_table
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import QueryRequest
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.engine.trace import Trace
from mavstream_server.log import LogReader, gather_arrivals
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.simulation import Workload, simulate

POLICIES = ("rr", "hr", "cqc")
UTILISATIONS = (0.5, 0.8)
TOLERANCE = 0.25
_TICK = 0.001  # seconds between two writings
_FIRST_RATE = 50.0  # tuples/s of each stream
_SEARCHES = 4
_LEAST_SEARCH = 0.5  # seconds: every stream must have brought something
_LATENCY_TARGET = 200  # us: sources do not wait for more rows
_SLICES = 2_000_000
_MOST_NOISE = 0.95


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a live run (10)")
    parser.add_argument("--policy", action="append", help="instead of rr, hr and cqc")
    parser.add_argument("--utilisation", type=float, action="append", help="instead of 0.5 and 0.8")


def run(options: argparse.Namespace) -> Outcome:
    """Run every policy live and simulated at each utilisation."""
    metrics: dict[str, Any] = {}
    for utilisation in options.utilisation or UTILISATIONS:
        rate = _rate(utilisation, max(options.seconds / 4, _LEAST_SEARCH))
        metrics[str(utilisation)] = {"tuples_per_s_per_stream": round(rate, 1)} | {
            policy: _compare(policy, rate, options.seconds) for policy in options.policy or POLICIES
        }
    return Outcome(metrics, _text(metrics))


@dataclass(frozen=True, slots=True)
class Live:
    """The measurements of a live run."""

    means: dict[str, float]
    """Milliseconds, by class."""
    utilisation: float
    workload: Workload


def _rate(utilisation: float, seconds: float) -> float:
    """Return the rate at which round robin keeps the engine busy for a share of the time."""
    rate = _FIRST_RATE
    for _ in range(_SEARCHES):
        found = _live("rr", rate, seconds).utilisation
        # A busy engine works in larger batches: near saturation the rate must grow faster than utilisation.
        rate *= utilisation / found if found < 1 else 0.5
    return rate


def _compare(policy: str, rate: float, seconds: float) -> dict[str, Any]:
    live = _live(policy, rate, seconds)
    result = simulate(live.workload, policy, sources=SourceService.PER_CLASS.value)
    classes = {}
    for name, mean in live.means.items():
        simulated = result.classes[name].mean_ms or 0.0
        classes[name] = {
            "live_ms": round(mean, 3),
            "simulated_ms": round(simulated, 3),
            "apart": round(simulated / mean - 1, 3),
        }
    return {
        "utilisation": round(live.utilisation, 3),
        "simulated_utilisation": round(result.utilisation, 3),
        "classes": classes,
        "agree": all(abs(one["apart"]) <= TOLERANCE for one in classes.values()),
    }


def _live(policy: str, rate: float, seconds: float) -> Live:
    queries = chains()
    streams = [stream for query in queries for stream in query.streams]
    with (
        TemporaryDirectory(prefix="mavstream-bench-", dir=memory()) as folder,
        feeder(Path(folder), streams, rate, seconds, _TICK) as feeding,
    ):
        place = Path(folder)
        engine = Engine(policy=policy, sources=SourceService.PER_CLASS)
        engine.loop.trace = Trace(_SLICES)
        for stream in streams:
            engine.attach(stream, LogReader(place / stream))
        for class_name, priority in PRIORITIES.items():
            engine.set_class(class_name, priority)
        running = {
            query.name: engine.start(
                QueryRequest(query.name, query.plan, query.class_name, latency_target=_LATENCY_TARGET),
                CountingSink(),
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
        engine.run()
        gc.enable()
        arrivals = {stream: _arrivals(place / stream, wall) for stream in streams}
        outputs = {name: query.output.latency for name, query in running.items()}
        operators = _measured(engine.loop.trace)
        decision = max(working - engine.loop.busy, 0) / max(engine.loop.slices, 1)
    means = {}
    for class_name in PRIORITIES:
        known = [outputs[query.name] for query in queries if query.class_name == class_name]
        means[class_name] = sum(one.total for one in known) / max(sum(one.count for one in known), 1) / 1e6
    workload = _workload(queries, arrivals, operators, decision)
    return Live(means, working / elapsed, workload)


def _arrivals(place: Path, begin: int) -> list[float]:
    """Return the arrival times of the rows of a log, in seconds."""
    spans = LogReader(place).cursor(0).take(1 << 40, 1 << 40)
    found: list[float] = np.maximum((gather_arrivals(spans) - begin) / 1e9, 0.0).tolist()
    return found


class Measured(NamedTuple):
    """Measured costs of an operator: microseconds per call and per tuple, selectivity, and variation."""

    setup: float
    cost: float
    selectivity: float
    variation: float
    """The standard deviation of the time of a call, relative to the mean."""
    time: float
    """All that its calls took, in microseconds."""


_NOTHING = Measured(0.0, 0.0, 1.0, 0.0, 0.0)


def _measured(trace: Trace) -> dict[tuple[str, str], Measured]:
    """Return the costs and selectivity of each operator, by query and kind, from the traced slices."""
    samples: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for one in trace.recorded().slices:
        if len(one.operators) == 1:
            samples[one.query, one.operators[0]].append((one.consumed, one.elapsed, one.produced))
    return {key: _fitted(np.array(known, dtype=np.float64)) for key, known in samples.items()}


def _fitted(samples: np.ndarray) -> Measured:
    """Separate the cost per call from the cost per tuple by least squares."""
    tuples, elapsed, produced = samples.T
    spread = tuples.var()
    slope = float(np.cov(tuples, elapsed, bias=True)[0, 1] / spread) if spread > 0 else 0.0
    # If calls have about the same size, the slope is mostly noise: both costs are at least zero.
    slope = min(max(slope, 0.0), float(elapsed.mean() / max(tuples.mean(), 1e-9)))
    setup = max(float(elapsed.mean()) - slope * float(tuples.mean()), 0.0)
    variation = float((elapsed - slope * tuples).std() / max(elapsed.mean(), 1.0))
    selectivity = float(produced.sum() / max(tuples.sum(), 1.0))
    return Measured(setup / 1000, slope / 1000, selectivity, variation, float(elapsed.sum()) / 1000)


def _workload(
    queries: Sequence[Chain],
    arrivals: Mapping[str, Sequence[float]],
    measured: Mapping[tuple[str, str], Measured],
    decision: float,
) -> Workload:
    sources = [one for (_, kind), one in measured.items() if kind == "source"]
    parts = []
    for query in queries:
        operators: dict[str, Any] = {}
        for name, kind, inputs in query.operators:
            one = measured.get((query.name, kind), _NOTHING)
            operators[name] = {
                "kind": kind,
                "inputs": inputs,
                "setup_us": one.setup,
                "cost_us": one.cost,
                "selectivity": 1.0 if kind == "output" else one.selectivity,
                "selection": "random",
            }
        parts.append({"id": query.name, "class": query.class_name, "operators": operators})
    return Workload.model_validate(
        {
            "name": "live",
            "about": "what a live run had",
            "classes": {name: {"priority": priority} for name, priority in PRIORITIES.items()},
            "streams": {
                stream: {"arrivals": "recorded", "offsets_s": tuple(offsets)}
                for stream, offsets in arrivals.items()
            },
            "sources": {
                "setup_us": fmean(one.setup for one in sources),
                "cost_us": fmean(one.cost for one in sources),
            },
            "overheads": {"decision_us": decision / 1000, "noise": _noise(measured.values())},
            "queries": parts,
        }
    )


def _noise(measured: Iterable[Measured]) -> float:
    """Return the noise that varies as calls do: costs are spread evenly around their means."""
    known = list(measured)
    variation = sum(one.time * one.variation for one in known) / sum(one.time for one in known)
    return min(sqrt(3) * variation, _MOST_NOISE)


def _rows(metrics: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for utilisation, policies in metrics.items():
        for policy, one in policies.items():
            if isinstance(one, dict):
                for name, metric in one["classes"].items():
                    yield (
                        f"{utilisation} {policy} {name}",
                        shown(metric["live_ms"], ".3f"),
                        shown(metric["simulated_ms"], ".3f"),
                        shown(metric["apart"], "+.0%"),
                    )


def _text(metrics: Mapping[str, Any]) -> str:
    return text_table(
        ("utilisation, policy, class", "live, ms", "simulated, ms", "apart"), list(_rows(metrics))
    )
