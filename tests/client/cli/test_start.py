"""The command loads what a sub-command needs, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.commands.in_process import command

from mavstream.cli.assembly import OWN, _loaded

HEAVY = {"numpy", "pyarrow", "pydantic", "httpx", "websockets", "orjson", "yaml", "fastapi"}

LOADED = """
import sys
sys.argv = ["mavstream", *sys.argv[1:]]
from mavstream.cli.main import run
try:
    run()
except SystemExit:
    pass
print("loaded", *sys.modules)
"""


@pytest.mark.parametrize("words", [("--help",), ("--version",), ()])
def test_help_and_version_load_nothing_heavy(words: tuple[str, ...]) -> None:
    run = [sys.executable, "-c", LOADED, *words]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert not loaded & HEAVY


def test_the_packages_load_names_when_they_are_used() -> None:
    code = "import sys, mavstream, mavstream_protocol; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY
    code = "import mavstream; mavstream.Clients"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "module 'mavstream' has no attribute 'Clients'" in done.stderr


@pytest.mark.parametrize("name", OWN)
def test_the_list_has_the_help_of_each_command(name: str) -> None:
    loaded = _loaded(name)
    assert loaded.name == name
    assert isinstance(loaded.help, str)
    assert loaded.help.splitlines()[0].replace("r`", "`").startswith(OWN[name][1].rstrip("."))


def test_unknown_commands_are_refused() -> None:
    done = command("strem")
    assert done.returncode == 2
    assert "strem" in done.stderr
