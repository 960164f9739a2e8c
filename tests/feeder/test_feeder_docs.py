"""Commands, Python and output on the page about feeding match the product."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.commands.in_process import command
from tests.support.documents import ROOT, as_program, blocks

from mavstream.testing import start_server

PAGE = ROOT / "docs" / "feeding.md"
ROWS = 120


def write_files(folder: Path) -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    readings = [f"{begin + timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ},{n % 45}\n" for n in range(ROWS)]
    (folder / "readings.csv").write_text("at,celsius\n" + "".join(readings))
    doors = [f"{n / 10},{n}\n" for n in range(ROWS)]
    (folder / "doors.csv").write_text("arrival_offset,door\n" + "".join(doors))


def test_the_commands_and_the_python_of_the_page_print_the_shown_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    (commands,) = blocks(PAGE, "sh")
    (shown,) = blocks(PAGE, "text")
    with start_server() as url:
        printed = ""
        for line in commands.splitlines():
            program, *words = shlex.split(line)
            assert program == "mavstream"
            done = command(*words, MAVSTREAM_URL=url)
            assert done.returncode == 0, line
            # What was created, or is there already, is said.
            assert all(" stream '" in f" {said}" for said in done.stderr.splitlines()), done.stderr
            printed += done.stdout
        program_file = tmp_path / "feeding.md.py"
        program_file.write_text(as_program(PAGE).replace("http://127.0.0.1:8000", url))
        done = subprocess.run(
            [sys.executable, program_file], capture_output=True, text=True, check=False, cwd=tmp_path
        )
    assert (done.stdout, done.stderr) == (shown, "")
    assert '"unmatched":{"readings.csv":0}' in printed
