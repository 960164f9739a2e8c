"""All sub-commands of `mavstream`, each loaded when it is used: of this package, and of other ones."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from mavstream.cli.sharing import share

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mavstream.commands"
OWN = {
    "class": ("classes:app", "Manage classes of queries, their priorities and latency targets."),
    "info": ("info:show_info", "Show the server's version, state and limits."),
    "optimizer": ("optimizer:app", "Watch QoS targets and the actions taken to keep them."),
    "policies": ("scheduling:list_policies", "List the available scheduling policies."),
    "producer": ("producers:app", "List producers, and remove those that are no longer used."),
    "query": ("queries:app", "Manage continuous queries and read their results."),
    "scheduler": ("scheduling:scheduler", "Show, change and trace the scheduling policy."),
    "sql": ("sql.command:run_sql", "Run SQL statements, or start an interactive shell."),
    "stats": ("stats:show_stats", "Show metrics of the engine, the classes and the traffic."),
    "stream": ("streams:app", "Manage streams and append rows."),
    "table": ("tables:app", "Manage stored tables, which streams can join."),
    "token": ("tokens:app", "Manage the tokens file of a server; send it SIGHUP to apply changes."),
    "top": ("stats:watch_load", "Watch the load of classes and queries, live like htop."),
}
"""Sub-commands of this package: where each is in `mavstream.cli`, and the help text for the list."""

KNOWN = {
    "serve": ("server", "Run a server."),
    "check": ("server", "Check and repair the data directory of a stopped server."),
    "feed": ("feeder", "Feed streams from files."),
    "demo": ("server", "Run a demo: 21 queries in three classes."),
    "page": ("page", "Serve the browser page of a server."),
    "simulate": ("server", "Simulate scheduling policies on a workload."),
    "data": ("spark", "Generate, convert and check datasets with Spark."),
    "spark-runner": ("spark", "Run queries that have backend `spark`."),
    "experiments": ("server", "Run the experiments of the papers on the simulator."),
}
"""Sub-commands that need an extra of this distribution: the extra, and the help text for the list."""


_COMPLETION = ("install_completion", "show_completion")
_OFFLINE = ("token",)
"""Sub-commands of this package that talk to no server."""


class AssembledGroup(TyperGroup):
    """A command group with the sub-commands of this package and those of installed packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all sub-commands, without loading packages."""
        return sorted({*OWN, *KNOWN, *_found()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a loaded sub-command; for another one, a placeholder for the list."""
        loaded = super().get_command(ctx, cmd_name)
        if loaded is not None or not _exists(cmd_name):
            return loaded
        return _placeholder(cmd_name, lambda: None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the sub-command that is to run, and no other."""
        if args and super().get_command(ctx, args[0]) is None and _exists(args[0]):
            command = _loaded(args[0])
            share(command, ctx, talks=args[0] in OWN and args[0] not in _OFFLINE)
            self.add_command(command, args[0])
        return super().resolve_command(ctx, args)


def _exists(name: str) -> bool:
    # What is installed is asked last, since that reads many files.
    return name in OWN or name in KNOWN or name in _found()


def _loaded(name: str) -> Any:
    if name in OWN:
        module, _, attribute = OWN[name][0].partition(":")
        return _command_of(name, getattr(import_module(f"mavstream.cli.{module}"), attribute))
    found = _found().get(name)
    if found is None:
        return _missing(name, "its package was not found")
    try:
        return _command_of(name, found.load())
    except (ImportError, AttributeError) as error:
        return _missing(name, str(error))


def _found() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _command_of(name: str, loaded: Any) -> Any:
    """Return the command of a function, or of a typer app: the one of that name, or its only one."""
    app = loaded
    if not isinstance(loaded, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name)(loaded)
    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {})
    command = commands.get(name, command)
    command.name = name
    # Those of the root complete all sub-commands.
    command.params = [one for one in command.params if one.name not in _COMPLETION]
    return command


def _missing(name: str, reason: str) -> Any:
    def fail() -> None:
        from mavstream.cli.output import complain

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
    app.command(name, help=(OWN.get(name) or KNOWN.get(name, ("", "")))[1], context_settings=settings)(action)
    return typer.main.get_command(app)
