"""Cost of scheduling: the time of a decision of each policy, and all time outside of operators."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.outcome import Outcome, shown, text_table
from bench.workload.queries import Q1, Q2, Q3, BenchQuery
from bench.workload.readings import Stream, write_stream
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.scheduling import Sharing
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.columns.batch import Batch
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.operators.operator import Operator, SteppedOperator
from mavstream_server.operators.source import Source
from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.scheduling.view import Report, Slice
from mavstream_server.testing import ScriptedNetwork, Step

_CHAIN = (Step("select", 0.5, 800), Step("aggregate", 1.0, 1600), Step("project", 1.0, 400))
_OPERATORS = len(_CHAIN) + 1  # with the output
_CLASSES = ("high", "middle", "low")
_BY_QUERIES, _FEW, _MANY = "300_queries", "100_operators", "10000_operators"
_WORK = {"q1": Q1, "q2": Q2, "q3": Q3}
_ROUNDS = 3
_TRAINS = (256, 1024, 4096, None)
_QUERIES = {_BY_QUERIES: 300, _FEW: 100 // _OPERATORS, _MANY: 10_000 // _OPERATORS}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--decisions", type=int, default=3000, help="timed per policy and size (3000)")
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES), help="only these policies")


def run(options: argparse.Namespace) -> Outcome:
    """Time the decisions of every policy at three sizes, then the engine's overhead."""
    policies = {name: _policy(name, options.decisions) for name in sorted(options.policy or POLICIES)}
    overhead = _overhead()
    return Outcome({"policies": policies, "overhead": overhead}, _text(policies, overhead))


def _policy(name: str, decisions: int) -> dict[str, float]:
    # Sizes alternate, so that a slow moment of the machine affects all of them or is outvoted.
    rounds = [
        {size: _decision_us(name, queries, decisions) for size, queries in _QUERIES.items()}
        for _ in range(_ROUNDS)
    ]
    metrics = {f"{size}_us": median(round_[size] for round_ in rounds) for size in _QUERIES}
    metrics["ratio"] = metrics[f"{_MANY}_us"] / metrics[f"{_FEW}_us"]
    return {key: round(value, 2) for key, value in metrics.items()}


def _decision_us(policy: str, queries: int, decisions: int) -> float:
    """Return the median of `next` plus `finished` while many operators are ready."""
    network = ScriptedNetwork(policy)
    for place, class_name in enumerate(_CLASSES):
        network.set_priority(class_name, 6 - 2 * place)
    for number in range(queries):
        network.add(f"q{number}", _CHAIN, _CLASSES[number % len(_CLASSES)])
        network.arrive(f"q{number}", 20)
    stopwatch = _Stopwatch(network.policy)
    network.policy = stopwatch  # type: ignore[assignment]
    for number in range(decisions):
        network.arrive(f"q{number * 7 % queries}", 20)
        if network.step() is None:
            raise RuntimeError(f"{policy} found nothing to run while tuples were waiting")
    return median(stopwatch.taken) / 1000


class _Stopwatch:
    """A policy under measurement: everything is handed on, `next` and `finished` are timed together."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._pending = 0
        self.taken: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def next(self, core: int, now: int) -> Slice | None:
        begin = time.perf_counter_ns()
        slice_: Slice | None = self._policy.next(core, now)
        self._pending = time.perf_counter_ns() - begin
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        begin = time.perf_counter_ns()
        self._policy.finished(slice_, report)
        self.taken.append(self._pending + time.perf_counter_ns() - begin)


def _overhead() -> dict[str, dict[str, dict[str, float]]]:
    """Return, by query and length of trains, the share of the time in which no operator processed tuples."""
    with TemporaryDirectory(prefix="mavstream-bench-") as place:
        return {name: _overhead_of(query, Path(place) / name) for name, query in _WORK.items()}


def _overhead_of(query: BenchQuery, place: Path) -> dict[str, dict[str, float]]:
    streams = [write_stream(place, name, 500_000, seed=1, frame_rows=1024) for name in query.streams]
    plan = infer(query.plan(), {stream.name: stream.shape for stream in streams})
    by_train = {
        "by time" if train is None else f"{train:,} rows": _outside_operators(plan, streams, train)
        for train in _TRAINS
    }
    answers = {metrics["answers"] for metrics in by_train.values()}
    if len(answers) > 1 or 0 in answers:
        raise RuntimeError(f"expected answers, the same number with all trains; got {sorted(answers)}")
    return by_train


def _outside_operators(plan: TypedPlan, streams: Sequence[Stream], train: int | None) -> dict[str, float]:
    # The same query four times: each of them is to do its own work.
    engine = Engine(policy="cqc", train=train, sharing=Sharing.OFF)
    for stream in streams:
        engine.attach(stream.name, stream.reader())
    stopwatch, sinks = _OperatorStopwatch(), [CountingSink() for _ in range(4)]
    for number, sink in enumerate(sinks):
        query = engine.start(QueryRequest(f"q{number}", plan, earliest=True), sink)
        for operator in query.network.operators.values():
            stopwatch.watch(operator)
    begin = time.perf_counter_ns()
    engine.run()
    elapsed = time.perf_counter_ns() - begin
    answers = {sink.offset for sink in sinks}
    if len(answers) > 1:
        raise RuntimeError(f"expected the same number of answers from equal queries, got {sorted(answers)}")
    return {
        "answers": answers.pop(),
        "slices": engine.loop.slices,
        "share": round(1 - stopwatch.elapsed / elapsed, 4),
        "mean_slice_us": round(elapsed / engine.loop.slices / 1000, 1),
    }


class _OperatorStopwatch:
    """Sums up the time that operators spend on tuples, without what lies between fused operators."""

    def __init__(self) -> None:
        self.elapsed = 0
        self._above = 0  # ns in operators above the one that runs, and on the way to them

    def watch(self, operator: Operator) -> None:
        """Measure an operator of a query that was started."""
        work = "read" if isinstance(operator, Source) else "process"
        if isinstance(operator, SteppedOperator):
            work = "proceed"
        setattr(operator, work, self._working(getattr(operator, work)))
        for queue in operator.inputs:
            if queue.receive is not None:
                queue.receive = self._handing_over(queue.receive)

    def _working(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            outer, self._above = self._above, 0
            begin = time.perf_counter_ns()
            done = work(*arguments)
            self.elapsed += time.perf_counter_ns() - begin - self._above
            self._above = outer
            return done

        return run

    def _handing_over(self, receive: Callable[[Batch], None]) -> Callable[[Batch], None]:
        def hand_over(batch: Batch) -> None:
            begin = time.perf_counter_ns()
            receive(batch)
            self._above += time.perf_counter_ns() - begin

        return hand_over


def _text(policies: dict[str, dict[str, float]], overhead: dict[str, dict[str, dict[str, float]]]) -> str:
    header = ("policy", "300 queries, us", "100 operators, us", "10,000 operators, us", "ratio")
    rows = [
        (name, *(shown(metrics[f"{size}_us"], ".2f") for size in _QUERIES), shown(metrics["ratio"], ".2f"))
        for name, metrics in policies.items()
    ]
    lines = [
        (name, trains, shown(metrics["mean_slice_us"], ".1f"), shown(metrics["share"], ".1%"))
        for name, by_train in overhead.items()
        for trains, metrics in by_train.items()
    ]
    beside = text_table(("four times", "trains", "mean slice, us", "not an operator at work"), lines)
    return text_table(header, rows) + "\n\n" + beside
