"""The command: `python -m bench engine [--json]`, from the project root."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.data import feeder, spark, spark_stream
from bench.engine import engine, sharing, turns
from bench.optimizer import targets, watching
from bench.outcome import Outcome
from bench.recovery import recovery
from bench.scheduling import classes, deadlines, decisions, isolation, steps
from bench.service import page, service, sql
from bench.simulation import agreement, simulator


class Benchmark(NamedTuple):
    """A benchmark as the command sees it."""

    about: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]


BENCHMARKS: dict[str, Benchmark] = {
    "agreement": Benchmark("the simulator against the live engine", agreement.add_options, agreement.run),
    "engine": Benchmark("the engine on one core, from log to output", engine.add_options, engine.run),
    "classes": Benchmark("three classes under several policies", classes.add_options, classes.run),
    "deadlines": Benchmark("latency targets kept, live and simulated", deadlines.add_options, deadlines.run),
    "decisions": Benchmark("what a scheduling decision costs", decisions.add_options, decisions.run),
    "feeder": Benchmark("whether the feeder keeps time, and how fast it is", feeder.add_options, feeder.run),
    "isolation": Benchmark("an important class beside an overload", isolation.add_options, isolation.run),
    "page": Benchmark("what the browser page costs", page.add_options, page.run),
    "recovery": Benchmark("recovery from a kill, cost of checkpoints", recovery.add_options, recovery.run),
    "sharing": Benchmark("queries with a prefix in common", sharing.add_options, sharing.run),
    "simulator": Benchmark("tuples per second of the simulator", simulator.add_options, simulator.run),
    "spark": Benchmark("what a generated row costs", spark.add_options, spark.run),
    "spark-stream": Benchmark("Spark's reads of a stream", spark_stream.add_options, spark_stream.run),
    "watching": Benchmark("what watching targets costs", watching.add_options, watching.run),
    "steps": Benchmark("the longest steps of operators with much state", steps.add_options, steps.run),
    "targets": Benchmark("targets kept in bursts, by an optimizer or not", targets.add_options, targets.run),
    "sql": Benchmark("what a query as SQL costs until it runs", sql.add_options, sql.run),
    "turns": Benchmark("many queries with a few rows at a time", turns.add_options, turns.run),
    "service": Benchmark("the service over websockets", service.add_options, service.run),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and print its metrics; returns 1 if an answer was wrong."""
    options = _parser().parse_args(arguments)
    outcome = BENCHMARKS[options.benchmark].run(options)
    print(json.dumps(outcome.metrics) if options.json else outcome.text)
    return 0 if outcome.correct else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures MavStream.")
    commands = parser.add_subparsers(dest="benchmark", required=True)
    for name, benchmark in BENCHMARKS.items():
        command = commands.add_parser(name, help=benchmark.about, description=benchmark.about)
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        benchmark.add_options(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
