"""The command: `python -m attack [--only NAME ...]`, from the project root."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from attack.options import Options
from attack.report import header
from attack.suite import ATTACKS, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attacks and print a line for each; returns 1 if an invariant was violated."""
    given = _parser().parse_args(arguments)
    options = Options(given.requests, given.frames, given.seed, given.seconds, given.patience)
    print(f"seed {options.seed}, {options.requests:,} requests, {options.frames:,} frames")
    print(header(), flush=True)
    lines = []
    for line in run(given.only or list(ATTACKS), options):
        lines.append(line)
        print(line.text(), flush=True)
    if given.json:
        written = {**options._asdict(), "attacks": [line.json() for line in lines]}
        given.json.write_text(json.dumps(written, indent=2) + "\n")
    violated = sum(len(line.violations) + line.findings.left_out for line in lines)
    print(f"{violated} violations" if violated else "every invariant held")
    return 1 if violated else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attack", description="Attacks a MavStream server that it starts on loopback."
    )
    default = Options()
    parser.add_argument("--requests", type=int, default=default.requests, help="requests of the HTTP fuzzers")
    parser.add_argument("--frames", type=int, default=default.frames, help="frames of the websocket fuzzer")
    parser.add_argument("--seed", type=int, default=default.seed, help="a seed repeats the same requests")
    parser.add_argument(
        "--seconds", type=float, default=default.seconds, help="length of attacks that have no count"
    )
    parser.add_argument(
        "--patience", type=float, default=default.patience, help="seconds after which a wait is a violation"
    )
    parser.add_argument(
        "--only", nargs="+", choices=ATTACKS, metavar="NAME", help=f"some of {', '.join(ATTACKS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
