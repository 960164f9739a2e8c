"""Cost of queries with equal prefixes: many of them against one, with sharing and without."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.outcome import Outcome, shown, text_table
from bench.workload.readings import Stream, write_stream
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.engine.states import QueryState

_FRAME_ROWS = 1024
_MODES = {"on": Sharing.CLASS, "off": Sharing.OFF}


def _select(number: int) -> dict[str, Any]:
    """Return a plan with a select that few rows pass, and a project above it that differs by query."""
    return {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "temperature > 38 AND humidity < 20"},
        "answer": {"op": "project", "input": "hot", "compute": {"ts": "ts", "t": f"temperature + {number}"}},
    }


def _window(number: int) -> dict[str, Any]:
    """Return a select and a window above it, and another select above that as the query's own."""
    return {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "temperature > 20"},
        "by": {
            "op": "aggregate",
            "input": "hot",
            "by": ["location"],
            "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)", "mean": "avg(temperature)"},
        },
        "answer": {"op": "select", "input": "by", "where": f"n > {200 + number % 50}"},
    }


_PREFIXES: dict[str, Callable[[int], dict[str, Any]]] = {"select": _select, "window": _window}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--rows", type=int, default=500_000, help="in the stream (500000)")
    parser.add_argument("--queries", type=int, default=100, help="over the same prefix (100)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the median counts (3)")


def run(options: argparse.Namespace) -> Outcome:
    """Time one query and many, with sharing and without, and compare all their answers."""
    with TemporaryDirectory(prefix="mavstream-bench-") as place:
        stream = write_stream(Path(place), "readings", options.rows, seed=1, frame_rows=_FRAME_ROWS)
        metrics = {name: _prefix(stream, plan, options) for name, plan in _PREFIXES.items()}
    return Outcome(metrics, _text(metrics), all(metric["correct"] for metric in metrics.values()))


def _prefix(
    stream: Stream, plan: Callable[[int], dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    taken: dict[tuple[str, int], list[float]] = {}
    answers: dict[int, list[list[int]]] = {}
    counts = sorted({1, options.queries})
    # All variants alternate, so that a slow moment of the machine is outvoted.
    for _ in range(options.repeat):
        for mode, sharing in _MODES.items():
            for queries in counts:
                seconds, counted = _run(stream, [plan(number) for number in range(queries)], sharing)
                taken.setdefault((mode, queries), []).append(seconds)
                answers.setdefault(queries, []).append(counted)
    metrics: dict[str, Any] = {}
    for mode in _MODES:
        one, many = (1000 * median(taken[mode, queries]) for queries in (1, options.queries))
        metrics[mode] = {"one_ms": round(one, 1), "many_ms": round(many, 1), "ratio": round(many / one, 2)}
    same = all(counted == runs[0] for runs in answers.values() for counted in runs)
    metrics["correct"] = same and answers[options.queries][0][:1] == answers[1][0]
    return metrics


def _run(stream: Stream, plans: list[dict[str, Any]], sharing: Sharing) -> tuple[float, list[int]]:
    """Run queries over the whole stream; returns the processor time and the number of answers of each."""
    chosen = DEFAULT_SCHEDULER
    engine = Engine(policy=chosen.policy, options=chosen.options, sharing=sharing)
    engine.attach(stream.name, stream.reader())
    queries: list[RunningQuery] = []
    for number, nodes in enumerate(plans):
        plan = infer(Plan.parse({"root": "answer", "nodes": nodes}), {stream.name: stream.shape})
        queries.append(engine.start(QueryRequest(f"q{number}", plan, earliest=True), CountingSink()))
    begin = time.process_time()
    engine.run()
    elapsed = time.process_time() - begin
    for query in queries:
        if query.state is not QueryState.FINISHED or query.rows_in != stream.size:
            raise RuntimeError(
                f"{query.id} is {query.state.value} behind {query.rows_in} rows: {query.reason}"
            )
    return elapsed, [query.output.sink.offset for query in queries]


def _text(metrics: dict[str, Any]) -> str:
    header = ("prefix, sharing", "one query, ms", "many, ms", "ratio")
    rows = [
        (
            f"{name}, {mode}",
            shown(of[mode]["one_ms"], ".1f"),
            shown(of[mode]["many_ms"], ".1f"),
            shown(of[mode]["ratio"], ".2f"),
        )
        for name, of in metrics.items()
        for mode in _MODES
    ]
    return text_table(header, rows)
