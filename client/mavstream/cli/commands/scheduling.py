"""`mavstream policies` and `mavstream scheduler`: the scheduling policy."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import orjson
import typer

from mavstream._errors import ConnectFailed
from mavstream.cli.commands.trace import trace
from mavstream.cli.display.output import show_fields, show_json, show_list
from mavstream.cli.session import Output, OutputOption, client_of
from mavstream_protocol.scheduling import SchedulerSettings, SourceService
from mavstream_protocol.wire.resources import PolicyInfo

scheduler = typer.Typer(no_args_is_help=True, help="Show, change and trace the scheduling policy.")


def list_policies(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the available scheduling policies: of the server, or without one those installed."""
    try:
        with client_of(context) as client:
            found = client.policies()
    except ConnectFailed:
        installed = _installed()
        if installed is None:
            raise
        found = installed
    show_list(
        found,
        output,
        ["policy", "good for", "options"],
        lambda one: (one.name, one.optimises, ", ".join(one.options.get("properties", {}))),
    )


def _installed() -> list[PolicyInfo] | None:
    """Return the policies of the server's package; None if it is not installed."""
    try:
        listing = import_module("mavstream_server.scheduling.listing")
    except ImportError:
        return None
    found: list[PolicyInfo] = listing.describe_all()
    return found


@scheduler.command("show")
def show(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the current policy."""
    with client_of(context) as client:
        _show(client.scheduler(), output)


@scheduler.command("set")
def set_policy(
    context: typer.Context,
    policy: Annotated[str, typer.Argument(help="Name of a policy; see `mavstream policies`.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the policy.")
    ] = None,
    sources: Annotated[
        SourceService | None, typer.Option(help="How sources are served; by default as the policy has it.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the policy; running queries go on."""
    options = dict(map(_read_option, option or []))
    with client_of(context) as client:
        _show(client.set_scheduler(policy, sources, **options), output)


scheduler.command("trace")(trace)


def _read_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--option")
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value


def _show(settings: SchedulerSettings, output: Output) -> None:
    if output is Output.JSON:
        show_json(settings)
    else:
        served = settings.sources or "as the policy has it"
        show_fields([("policy", settings.policy), *settings.options.items(), ("sources", served)])
