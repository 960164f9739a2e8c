"""`mavstream class`: classes of queries, their priorities and latency targets."""

from __future__ import annotations

from typing import Annotated

import typer

from mavstream.cli.display.output import show_json, show_table
from mavstream.cli.session import Output, OutputOption, client_of
from mavstream_protocol import QueryClass, format_duration

app = typer.Typer(
    no_args_is_help=True, help="Manage classes of queries, their priorities and latency targets."
)


@app.command("set")
def set_class(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the class.")],
    priority: Annotated[int, typer.Argument(help="1 to 1000; processor time is shared in this ratio.")],
    description: Annotated[str, typer.Option(help="A description for people.")] = "",
    latency: Annotated[
        str | None,
        typer.Option(
            help="Latency target of its queries that have none of their own: 20ms. None if omitted."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a class, or replace its priority, description and latency target."""
    with client_of(context) as client:
        found = client.put_class(name, priority, description, latency)
    if output is Output.JSON:
        show_json(found)
    else:
        _show([found])


@app.command("delete")
def delete_class(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the class.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a class that has no queries, or only ended ones."""
    with client_of(context) as client:
        client.delete_class(name)
    if output is Output.JSON:
        show_json({"deleted": name})


@app.command("list")
def list_classes(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the classes."""
    with client_of(context) as client:
        found = client.classes()
    if output is Output.JSON:
        show_json(found)
    else:
        _show(sorted(found, key=lambda one: -one.priority))


def _show(classes: list[QueryClass]) -> None:
    show_table(
        ["class", "priority", "latency", "description"],
        [(one.name, one.priority, _written(one.latency), one.description) for one in classes],
    )


def _written(latency: int | None) -> str:
    return "" if latency is None else format_duration(latency)
