"""Sub-commands of other packages, found by entry points and loaded when they are used."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from mavstream.cli.output import complain

GROUP = "mavstream.commands"
KNOWN = {
    "serve": ("server", "Run a server."),
    "check": ("server", "Check and repair the data directory of a stopped server."),
    "feed": ("feeder", "Feed streams from files."),
    "demo": ("server", "Run a demo: 21 queries in three classes."),
    "page": ("page", "Serve the browser page of a server."),
    "simulate": ("server", "Simulate scheduling policies on a workload."),
    "data": ("spark", "Generate, convert and check datasets with Spark."),
    "experiments": ("server", "Run the experiments of the papers on the simulator."),
}
"""Sub-commands that need an extra of this distribution: the extra, and the help text for the list."""


class AssembledGroup(TyperGroup):
    """A command group with its own sub-commands and those of installed packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all sub-commands, without loading packages."""
        return sorted({*super().list_commands(ctx), *KNOWN, *_found()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a sub-command; for one of another package, a placeholder for the list."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or not (cmd_name in KNOWN or cmd_name in _found()):
            return own
        return _placeholder(cmd_name, lambda: None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the package of the sub-command that is to run, and of no other."""
        if args and super().get_command(ctx, args[0]) is None and self.get_command(ctx, args[0]) is not None:
            self.add_command(_loaded(args[0]), args[0])
        return super().resolve_command(ctx, args)


def _loaded(name: str) -> Any:
    found = _found().get(name)
    if found is None:
        return _missing(name, "its package was not found")
    try:
        return _command_of(found)
    except (ImportError, AttributeError) as error:
        return _missing(name, str(error))


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _command_of(point: EntryPoint) -> Any:
    """Return the command of a package's typer app: the one of that name, or its only one."""
    command = typer.main.get_command(point.load())
    commands = getattr(command, "commands", {})
    command = commands.get(point.name, command)
    command.name = point.name
    return command


def _missing(name: str, reason: str) -> Any:
    def fail() -> None:
        extra = KNOWN.get(name, (name, ""))[0]
        complain(
            f"'mavstream {name}' needs packages that are not installed ({reason}): "
            f"pip install 'mavstream[{extra}]'"
        )
        raise typer.Exit(2)

    return _placeholder(name, fail)


def _placeholder(name: str, action: Any) -> Any:
    app = typer.Typer(add_completion=False)
    # Accepts any options, since the outcome is the same.
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, help=KNOWN.get(name, ("", ""))[1], context_settings=settings)(action)
    return typer.main.get_command(app)
