"""The scripts in `examples/` run as a stranger runs them: real processes, sockets, pipes and files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.documents import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(
    path.name for path in EXAMPLES.glob("*.sh") if path.name not in ("session.sh", "first_answer.sh")
)


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_way_through_the_first_ten_minutes(name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAVSTREAM_")}
    done = subprocess.run(
        ["bash", EXAMPLES / name],
        env={**environment, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("done: ")


def test_a_step_that_fails_is_named_and_ends_the_script(tmp_path: Path) -> None:
    script = tmp_path / "wrong.sh"
    script.write_text(f"source {EXAMPLES}/session.sh\nstep 'Wrong'\nexpect two echo one\necho unreached\n")
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "expected 'two' in the output" in done.stderr
    assert "FAILED (exit code 1) in: Wrong" in done.stderr
    assert "unreached" not in done.stdout


def test_every_script_is_described() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert SCRIPTS
    assert all(f"`{name}`" in listed for name in SCRIPTS)
