"""The engine on one core: Q1, Q2 and Q3 from the stream log to a counting output, beside numpy by hand.

Engine and loop take turns, so that noise hits both; what counts is the ratio of their medians.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.answers import Reference, engine_answer, loop_answer
from bench.data import TUPLES, Stream, write_stream
from bench.memory import peak_above_start
from bench.outcome import Outcome, shown, text_table
from bench.queries import Q1, Q2, Q3, BenchQuery
from mavstream_protocol.inference import infer
from mavstream_server.engine.clock import SystemClock
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import QueryRequest
from mavstream_server.engine.sinks import CountingSink, MemorySink
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.output import Sink

_PROFILE_LINES = 40


@dataclass(frozen=True, slots=True)
class Case:
    """A query with the size of its frames."""

    query: BenchQuery
    frame_rows: int = 1024
    measures_memory: bool = False


CASES: dict[str, Case] = {
    "q1": Case(Q1),
    "q2": Case(Q2),
    "q3": Case(Q3, measures_memory=True),
    "q1_frames_of_16": Case(Q1, frame_rows=16),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--repeat", type=_at_least_one, default=3, help="timed runs; the median is reported")
    parser.add_argument("--scale", type=_positive, default=1.0, help="size of the data, 1 for a million tuples")
    parser.add_argument("--profile", choices=CASES, help="profile the engine on one query instead")


def run(options: argparse.Namespace) -> Outcome:
    """Run all cases, or profile one of them."""
    with TemporaryDirectory(prefix="mavstream-bench-") as directory:
        if options.profile:
            case = CASES[options.profile]
            return Outcome({}, _profile(case, _streams(case, Path(directory), options.scale)))
        figures = {
            name: _measure(case, _streams(case, Path(directory), options.scale), options.repeat)
            for name, case in CASES.items()
        }
    return Outcome(figures, _as_text(figures), all(figure["correct"] for figure in figures.values()))


def _streams(case: Case, directory: Path, scale: float) -> list[Stream]:
    names = case.query.streams
    size = max(int(TUPLES * scale) // len(names), 1)
    return [write_stream(directory, name, size, seed, case.frame_rows) for seed, name in enumerate(names)]


def _measure(case: Case, streams: Sequence[Stream], repeat: int) -> dict[str, Any]:
    """Check both answers, which also warms up, then time both in turns."""
    figures: dict[str, Any] = {"tuples_per_s": None, "numpy_tuples_per_s": None, "ratio": None}
    if case.measures_memory:
        figures["peak_rss_mb_above_start"] = None
    figures["correct"] = _correct(case.query, streams)
    if not figures["correct"]:
        return figures
    tuples = sum(stream.size for stream in streams)
    engine, by_hand = [], []
    for _ in range(repeat):
        engine.append(_seconds(lambda: _run_engine(case.query, streams, CountingSink())))
        by_hand.append(_seconds(lambda: _run_loop(case.query, streams)))
    figures["tuples_per_s"] = round(tuples / median(engine))
    figures["numpy_tuples_per_s"] = round(tuples / median(by_hand))
    figures["ratio"] = round(median(by_hand) / median(engine), 3)
    if case.measures_memory:
        figures["peak_rss_mb_above_start"] = round(_peak_memory(case, streams), 1)
    return figures
