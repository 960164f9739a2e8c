"""Cost of many queries that get a few rows at a time: processor time of the engine per query and row.

One engine is stepped by hand in this process, so that nothing of the service is measured, and processor time
is counted, so that other work on the machine disturbs little. Answers go to result logs, as in a service.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.outcome import Outcome, shown, text_table
from bench.workload.readings import EVENT_TIME, SCHEMA, readings
from bench.workload.thresholds import range_plan, rule_plan
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.core.clock import SystemClock
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import ResultLogSink
from mavstream_server.log import LogDescription, LogReader, LogWriter
from mavstream_server.log.options import LogOptions

_WARM_UP = 3
_SEGMENT = LogOptions(segment_bytes=64 << 10)


@dataclass(frozen=True, slots=True)
class Case:
    """So many queries spread over streams, each of which gets `rows` rows at a time."""

    queries: int
    streams: int
    rows: int = 1
    rules: bool = False
    """Whether each query asks for one sensor, so that few rows pass; else a quarter of them does."""


CASES = {
    "600 queries, 20 streams": Case(600, 20),
    "3,000 queries, 100 streams": Case(3000, 100),
    "3,738 rules, one stream": Case(3738, 1, rows=25, rules=True),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--rounds", type=int, default=10, help="measured, of each case (10)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the queries and streams (1)")
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="only this one, by its number")


def run(options: argparse.Namespace) -> Outcome:
    """Run the cases one after the other."""
    chosen = list(CASES) if options.case is None else [list(CASES)[options.case]]
    metrics = {name: _measure(_scaled(CASES[name], options.scale), options.rounds) for name in chosen}
    rows = [
        (
            name,
            shown(found["us_per_query_and_row"], ".2f"),
            shown(found["ms_per_round"], ".1f"),
            shown(found["us_per_answer"], ".1f"),
            "yes" if found["correct"] else "NO",
        )
        for name, found in metrics.items()
    ]
    text = text_table(("case", "us per query and row", "ms per round", "us per answer", "correct"), rows)
    return Outcome(metrics, text, all(found["correct"] for found in metrics.values()))


def _scaled(case: Case, scale: float) -> Case:
    queries, streams = int(case.queries * scale), int(case.streams * scale)
    return replace(case, queries=max(queries, 1), streams=max(streams, 1))


def _measure(case: Case, rounds: int) -> dict[str, Any]:
    with TemporaryDirectory(prefix="mavstream-bench-") as place:
        return _rounds(case, rounds, Path(place))


def _rounds(case: Case, rounds: int, place: Path) -> dict[str, Any]:
    engine = Engine(policy=DEFAULT_SCHEDULER.policy, options=DEFAULT_SCHEDULER.options)
    names = [f"s{number}" for number in range(case.streams)]
    shape = StreamShape(SCHEMA, EVENT_TIME)
    writers = {name: LogWriter(place / name, LogDescription(SCHEMA, EVENT_TIME)) for name in names}
    for name in names:
        engine.attach(name, LogReader(place / name))
    sinks, results = [], []
    for number in range(case.queries):
        stream = names[number % case.streams]
        nodes = rule_plan(number, stream) if case.rules else range_plan(number, stream)
        plan = infer(Plan.parse(nodes), {stream: shape})
        results.append(LogWriter(place / f"r{number}", LogDescription(plan.schema), _SEGMENT))
        sinks.append(ResultLogSink(results[-1], plan.schema.names, epoch=1))
        engine.start(QueryRequest(f"q{number}", plan), sinks[-1])
    columns = readings(case.rows * (rounds + _WARM_UP), seed=3)
    taken = []
    for number in range(rounds + _WARM_UP):
        start, stop = number * case.rows, (number + 1) * case.rows
        frame = {name: column.slice(start, stop) for name, column in columns.items()}
        for writer in writers.values():
            writer.append(frame, case.rows, SystemClock.now(), producer=1, sequence=number + 1)
        begin = time.thread_time_ns()
        engine.run()
        taken.append(time.thread_time_ns() - begin)
    answers = [sink.offset for sink in sinks]
    for log in (*writers.values(), *results):
        log.close()
    each = median(taken[_WARM_UP:]) / 1000
    return {
        "us_per_query_and_row": round(each / (case.queries * case.rows), 3),
        "ms_per_round": round(each / 1000, 2),
        "us_per_answer": round(sum(taken[_WARM_UP:]) / 1000 / max(sum(answers), 1), 1),
        "answers": sum(answers),
        "correct": answers == _expected(case, columns),
    }


def _expected(case: Case, columns: dict[str, Any]) -> list[int]:
    temperature, humidity = columns["temperature"].values, columns["humidity"].values
    sensor = columns["sensor_id"].values
    if case.rules:
        return [
            int(np.count_nonzero((sensor == number % 1000) & (temperature > number // 1000 * 10 % 40)))
            for number in range(case.queries)
        ]
    return [
        int(np.count_nonzero((temperature > number % 40) & (humidity < 10 + number % 90)))
        for number in range(case.queries)
    ]
