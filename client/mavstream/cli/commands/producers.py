"""`mavstream producer`: who feeds the streams."""

from __future__ import annotations

from typing import Annotated

import typer

from mavstream.cli.display.output import show_json, show_list
from mavstream.cli.display.readable import clock
from mavstream.cli.session import Output, OutputOption, client_of

app = typer.Typer(no_args_is_help=True, help="List producers, and remove those that are no longer used.")


@app.command("list")
def list_producers(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the producers."""
    with client_of(context) as client:
        found = client.producers()
    show_list(
        found,
        output,
        ["producer", "owner", "connected", "last used", "streams"],
        lambda one: (one.name, one.owner or "(all)", one.connected, clock(one.last_used), len(one.sequences)),
    )


@app.command("delete")
def delete(
    context: typer.Context,
    producer: Annotated[str, typer.Argument(metavar="PRODUCER", help="Name of a producer.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a producer; its rows stay, and a producer of that name starts anew."""
    with client_of(context) as client:
        client.delete_producer(producer)
    if output is Output.JSON:
        show_json({"deleted": producer})
