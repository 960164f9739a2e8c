"""Run the `mavstream` command in the process of the test: another interpreter takes a second to start.

Signals, terminals and missing packages are tested with a real process (`as_process`).
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from typing import NamedTuple
from unittest.mock import patch

from mavstream.cli.main import run


class Outcome(NamedTuple):
    """Exit code and output, with the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def command(*words: str, stdin: str = "", **environment: str) -> Outcome:
    """Run the command with arguments and only these of its environment variables."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("MAVSTREAM_")}
    output, errors = StringIO(), StringIO()
    with (
        patch.dict(os.environ, {**others, **environment}, clear=True),
        patch.object(sys, "argv", ["mavstream", *words]),
        patch.object(sys, "stdin", TextIOWrapper(BytesIO(stdin.encode()))),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        code = _exit_code()
    return Outcome(code, output.getvalue(), errors.getvalue())


def _exit_code() -> int:
    try:
        run()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    return 0
