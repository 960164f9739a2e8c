"""The engine on one core: Q1, Q2 and Q3 from the stream log to a counting output, beside numpy by hand.

Engine and loop take turns, so that noise hits both; what counts is the ratio of their medians.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.engine.answers import engine_answer, loop_answer
from bench.engine.memory import peak_above_start
from bench.engine.runs import Run, engine_run, loop_run
from bench.outcome import Outcome, shown, text_table
from bench.workload.queries import Q1, Q2, Q3, BenchQuery
from bench.workload.readings import TUPLES, Stream, write_stream
from bench.workload.reference import Reference
from mavstream_server.core.clock import SystemClock
from mavstream_server.engine.sinks import CountingSink, MemorySink

_PROFILE_LINES = 40
_LEAST_SCALE = 0.001  # some rows for every query to answer with


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
    parser.add_argument("--repeat", type=_repeat, default=3, help="timed runs; the median is reported (3)")
    parser.add_argument("--scale", type=_scale, default=1.0, help="1 for a million tuples (1)")
    parser.add_argument("--profile", choices=CASES, help="show where the engine's time goes on one query")


def run(options: argparse.Namespace) -> Outcome:
    """Run all cases, or profile one of them."""
    with TemporaryDirectory(prefix="mavstream-bench-") as place:
        directory = Path(place)
        if options.profile:
            case = CASES[options.profile]
            return _profile(case.query, _write_streams(case, directory, options.scale))
        metrics = {
            name: _measure(case, _write_streams(case, directory / name, options.scale), options.repeat)
            for name, case in CASES.items()
        }
    return Outcome(metrics, _as_text(metrics), all(metric["correct"] for metric in metrics.values()))


def _write_streams(case: Case, directory: Path, scale: float) -> list[Stream]:
    names = case.query.streams
    size = int(TUPLES * scale) // len(names)
    return [write_stream(directory, name, size, seed, case.frame_rows) for seed, name in enumerate(names)]


def _measure(case: Case, streams: Sequence[Stream], repeat: int) -> dict[str, Any]:
    """Check both answers, which also warms up, then time both in turns; a wrong answer has no times."""
    correct = _correct(case.query, streams)
    metrics: dict[str, Any] = _times(case.query, streams, repeat) if correct else dict(_NO_TIMES)
    if case.measures_memory:
        metrics["peak_rss_mb_above_start"] = _peak_memory(case.query, streams) if correct else None
    return metrics | {"correct": correct}


def _correct(query: BenchQuery, streams: Sequence[Stream]) -> bool:
    reference, sink = Reference(query, {one.name: one.arrow() for one in streams}), MemorySink()
    engine_run(query, streams, sink)()
    by_hand = query.loop(*(stream.reader() for stream in streams))
    return reference.agrees(engine_answer(query, sink.batches)) and reference.agrees(
        loop_answer(query, by_hand)
    )


_NO_TIMES = {"tuples_per_s": None, "numpy_tuples_per_s": None, "ratio": None}


def _times(query: BenchQuery, streams: Sequence[Stream], repeat: int) -> dict[str, Any]:
    tuples = sum(stream.size for stream in streams)
    engine, by_hand = [], []
    for _ in range(repeat):
        engine.append(_seconds(engine_run(query, streams, CountingSink())))
        by_hand.append(_seconds(loop_run(query, streams)))
    return {
        "tuples_per_s": round(tuples / median(engine)),
        "numpy_tuples_per_s": round(tuples / median(by_hand)),
        "ratio": round(median(by_hand) / median(engine), 3),
    }


def _seconds(run_: Run) -> float:
    begin = SystemClock.monotonic()
    run_()
    return (SystemClock.monotonic() - begin) / 1e9


def _peak_memory(query: BenchQuery, streams: Sequence[Stream]) -> float:
    """Return the peak of a run in a process of its own, in MB above its start."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return round(pool.submit(_peak_of_run, query, streams).result(), 1)


def _peak_of_run(query: BenchQuery, streams: Sequence[Stream]) -> float:
    return peak_above_start(engine_run(query, streams, CountingSink()))


def _profile(query: BenchQuery, streams: Sequence[Stream]) -> Outcome:
    engine_run(query, streams, CountingSink())()
    run_, profile, text = engine_run(query, streams, CountingSink()), cProfile.Profile(), io.StringIO()
    profile.runcall(run_)
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(_PROFILE_LINES)
    return Outcome({"profile": text.getvalue()}, text.getvalue())


def _as_text(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        (
            name,
            shown(metric["tuples_per_s"], ","),
            shown(metric["numpy_tuples_per_s"], ","),
            shown(metric["ratio"], ".3f"),
            shown(metric.get("peak_rss_mb_above_start"), ".1f"),
            "yes" if metric["correct"] else "NO",
        )
        for name, metric in metrics.items()
    ]
    header = ("query", "engine tuples/s", "numpy tuples/s", "ratio", "peak MB above start", "correct")
    return text_table(header, rows)


def _repeat(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"at least 1 run is needed, got {text}")
    return value


def _scale(text: str) -> float:
    if (value := float(text)) < _LEAST_SCALE:
        raise argparse.ArgumentTypeError(f"at least {_LEAST_SCALE} is needed, got {text}")
    return value
