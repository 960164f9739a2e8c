"""Chaos as a command, with few rounds against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_chaos(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    file = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--json", str(file), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, json.loads(file.read_text())


@pytest.mark.parametrize(
    ("faults", "killed"), [pytest.param("--no-faults", False, marks=pytest.mark.long), ("--verbose", True)]
)
def test_every_answer_comes_exactly_once(tmp_path: Path, faults: str, killed: bool) -> None:
    done, report = run_chaos(tmp_path, "--seed", "6", "--rounds", "4", "--seconds-per-round", "0.2", faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 6, 4 rounds" in done.stdout
    assert (report["rounds"], report["violations"], bool(report["sigkills"])) == (4, [], killed)
    assert report["answers"]
    assert report["acked"]
