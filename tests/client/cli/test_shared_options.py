"""The server, its token and the output format can be named before and behind every sub-command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands.in_process import command

from mavstream.cli.assembly import KNOWN, OWN
from mavstream.testing import start_server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_server() as found:
        yield found


PLACES = [
    ("--url URL -o json stream list"),
    ("--url URL stream -o json list"),
    ("--url URL stream list -o json"),
    ("stream --url URL list -o json"),
    ("-o json stream list --url URL"),
    ("stream list --timeout 9 -o json --url URL"),
]


@pytest.mark.parametrize("words", PLACES)
def test_options_may_stand_before_and_behind_the_sub_command(url: str, words: str) -> None:
    # What is written precedes the environment.
    done = command(*words.replace("URL", url).split(), MAVSTREAM_URL="http://127.0.0.1:1")
    assert done.stderr == ""
    assert json.loads(done.stdout) == []


def test_the_last_server_that_is_named_counts(url: str) -> None:
    assert command("--url", "http://127.0.0.1:1", "info", "--url", url).returncode == 0
    assert command("--url", url, "info", "--url", "http://127.0.0.1:1").returncode == 3


def test_a_token_file_may_be_named_behind_the_sub_command(url: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert command("info", "--url", url, "--token-file", str(file)).returncode == 0
    done = command("info", "--url", url, "--token-file", str(tmp_path / "none"), MAVSTREAM_TOKEN="a")
    assert done.returncode == 2
    assert "cannot read" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("words", [("-o", "json", "simulate", "5G"), ("simulate", "5G", "-o", "json")])
def test_sub_commands_with_a_flag_for_json_understand_the_option(words: tuple[str, ...]) -> None:
    done = command(*words, "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)


@pytest.mark.parametrize("name", sorted({*OWN, *KNOWN}))
def test_h_is_help(name: str) -> None:
    shown = command(name, "-h")
    assert shown.returncode == 0
    assert "Usage: mavstream" in shown.stdout
    assert shown.stdout == command(name, "--help").stdout


def completed(words: str) -> list[str]:
    env = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    run = [sys.executable, "-m", "mavstream"]
    asked = {**env, "_MAVSTREAM_COMPLETE": "complete_bash"}
    done = subprocess.run(run, env=asked, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_tab_completes_sub_commands_and_options() -> None:
    assert completed("mavstream str") == ["stream"]
    assert set(completed("mavstream stream ")) >= {"list", "append", "create"}
    assert completed("mavstream query list --st") == ["--state"]
    assert completed("mavstream serve --max-q") == ["--max-queries"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    script = command("--show-completion", shell).stdout
    assert f"_MAVSTREAM_COMPLETE=complete_{shell}" in script
