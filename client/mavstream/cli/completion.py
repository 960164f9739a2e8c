"""`--show-completion` and `--install-completion`: tab completion for shells."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Any

import typer

NAME = "mavstream"
VARIABLE = "_MAVSTREAM_COMPLETE"
"""The environment variable with which a shell asks for completions."""


class Shell(StrEnum):
    """A shell whose tab completion is supported."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def prepare() -> None:
    """Register the shells, if a shell asks for completions now.

    The options of typer's own `add_completion` cannot name a shell.
    """
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()


def show(shell: Shell | None) -> Any:
    """Print the script of a shell."""
    if shell is not None:
        from typer._completion_shared import get_completion_script

        typer.echo(get_completion_script(prog_name=NAME, complete_var=VARIABLE, shell=shell.value))
        raise typer.Exit
    return shell


def install(shell: Shell | None) -> Any:
    """Install the script of a shell for this user."""
    if shell is not None:
        from typer._completion_shared import install as install_script

        _, path = install_script(shell=shell.value, prog_name=NAME, complete_var=VARIABLE)
        typer.echo(f"completion for {shell} is installed in {path}: open a new terminal to use it")
        raise typer.Exit
    return shell
