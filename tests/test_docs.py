"""Examples, commands and output in the documents match the product."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands.in_process import command
from tests.support.documents import ROOT, as_program, blocks

from mavstream.testing import start_server

SDK = ROOT / "docs" / "sdk.md"
SIMULATOR = ROOT / "docs" / "simulator.md"
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_its_stored_output(example: Path) -> None:
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == example.with_suffix(".out").read_text()


def test_the_session_in_the_readme_runs() -> None:
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[:2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == shown


def test_the_python_of_the_sdk_page_prints_the_shown_output(tmp_path: Path) -> None:
    program = tmp_path / "sdk.md.py"
    with start_server() as url:
        program.write_text(as_program(SDK).replace("http://127.0.0.1:8000", url))
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(blocks(SDK, "python")) >= 8
    shown = blocks(SDK, "text")
    assert shown
    for text in shown:
        assert text in done.stdout


def test_the_commands_of_the_sdk_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks(SDK, "sh")
    (plan,) = blocks(SDK, "yaml")
    (tmp_path / "hot.yaml").write_text(plan)
    (tmp_path / "rows.csv").write_text("at,room,temperature\n2026-01-01T12:00:00Z,attic,31.5\n")
    (tmp_path / "rooms.csv").write_text("room,threshold\nattic,30\n")
    printed = ""
    with start_server() as url:
        for line in commands.splitlines():
            program, *words = shlex.split(line)
            assert program == "mavstream"
            words = [re.findall(r"hot-\w{6}", printed)[-1] if word == "QUERY" else word for word in words]
            done = command(*words, MAVSTREAM_URL=url)
            assert (done.returncode, done.stderr) == (0, ""), line
            printed += done.stdout
    assert '"temperature":31.5' in printed
    assert (tmp_path / "trace.png").exists()


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name
)
def test_links_between_documents_are_valid(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_policy_is_described() -> None:
    from mavstream_server.scheduling.registry import POLICIES

    text = (ROOT / "docs" / "scheduling.md").read_text()
    for name in POLICIES:
        assert f"`{name}`" in text


def test_the_python_of_the_simulator_page_prints_the_shown_output() -> None:
    (code,), (shown,) = blocks(SIMULATOR, "python"), blocks(SIMULATOR, "text")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == shown


def test_the_commands_of_the_simulator_page_run_with_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (commands,), (workload,) = blocks(SIMULATOR, "sh"), blocks(SIMULATOR, "yaml")
    (tmp_path / "shop.yaml").write_text(workload)
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert program == "mavstream"
        done = command(*words)
        assert done.returncode == 0, done.stderr
        assert ("critical" if "shop.yaml" in words else '"H"') in done.stdout
