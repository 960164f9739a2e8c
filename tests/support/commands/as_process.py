"""Run the `mavstream` command as a process."""

from __future__ import annotations

import subprocess
import sys

PATIENCE = 120


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "mavstream", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def started(*words: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "mavstream", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
