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


@pytest.mark.parametrize("seed", [1, 2])
def test_without_faults_every_answer_is_as_expected(tmp_path: Path, seed: int) -> None:
    done, report = run_chaos(tmp_path, "--seed", f"{seed}", "--rounds", "3", "--no-faults")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {seed}, 3 rounds" in done.stdout
    assert (report["rounds"], report["violations"], report["kills"]) == (3, [], {})
    assert report["answers"]
    assert report["acked"]


def test_with_kills_every_answer_comes_exactly_once(tmp_path: Path) -> None:
    done, report = run_chaos(tmp_path, "--seed", "3", "--rounds", "6", "--seconds-per-round", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (report["rounds"], report["violations"]) == (6, [])
    assert report["kills"]
