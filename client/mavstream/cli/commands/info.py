"""`mavstream info`: the server's version, state and limits."""

from __future__ import annotations

import typer

from mavstream.cli.display.output import show_fields, show_json
from mavstream.cli.display.readable import size
from mavstream.cli.session import Output, OutputOption, client_of


def show_info(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the server's version, state and limits."""
    with client_of(context) as client:
        info = client.info()
        ready = client.ready()
    if output is Output.JSON:
        show_json({**info.model_dump(mode="json"), "ready": ready})
        return
    fields = [("server", f"{info.name} {info.version}"), ("ready", ready), ("delivery", info.delivery)]
    show_fields([*fields, ("engines", info.engines), *map(_limit, sorted(info.limits.items()))])


def _limit(limit: tuple[str, int]) -> tuple[str, object]:
    name, value = limit
    return name.replace("_", " "), size(value) if name.endswith("_bytes") else value
