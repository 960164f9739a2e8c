"""The command: `python -m chaos --seed N --rounds N`, from the project root."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos.options import ChaosOptions
from chaos.run import run
from chaos.schedule import KINDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds of faults and print the report; returns 1 if anything was violated."""
    given = _parser().parse_args(arguments)
    only = () if given.no_faults else tuple(given.only)
    options = ChaosOptions(given.seed, given.rounds, given.seconds_per_round, only, given.drain, given.keep)
    print(f"seed {options.seed}, {options.rounds} rounds", flush=True)
    report = run(options, tell=(lambda line: print(line, flush=True)) if given.verbose else lambda line: None)
    print(report.text(), flush=True)
    if given.json:
        given.json.write_text(json.dumps(report.json(), indent=2) + "\n")
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    default = ChaosOptions()
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Kills a MavStream server that it starts, and checks its answers."
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="a seed repeats the same faults")
    parser.add_argument("--rounds", type=int, default=default.rounds)
    parser.add_argument(
        "--seconds-per-round", type=float, default=default.seconds, help="mean time to feed before a fault"
    )
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="faults to choose from")
    parser.add_argument("--no-faults", action="store_true", help="rounds without faults, to check the check")
    parser.add_argument(
        "--drain", type=float, default=default.drain, help="seconds for the queries to finish"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="copy data and log there after a violation"
    )
    parser.add_argument("--verbose", action="store_true", help="print each round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
