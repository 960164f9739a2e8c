"""The command `mavstream serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mavstream_protocol.errors import MavstreamError

app = typer.Typer(no_args_is_help=False)

_LIMITS = "Limits"


def _limit(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=_LIMITS)


@app.command()
def serve(
    data: Annotated[Path | None, typer.Option(help="The directory of everything that is kept.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; others than loopback need tokens.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    tokens_file: Annotated[
        Path | None, typer.Option(help="File with a line ROLE:TOKEN per token (or MAVSTREAM_TOKENS).")
    ] = None,
    delivery: Annotated[
        str | None, typer.Option(help="What an ack survives: 'process' deaths, or power loss too: 'sync'.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Scheduling policy of a new server.")] = None,
    policy_options: Annotated[str | None, typer.Option(help="Its options, as a JSON object.")] = None,
    sources: Annotated[
        str | None, typer.Option(help="How sources are served: between_slices, per_class, ...")
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(help="New queries that would miss targets, or make others: 'warn', 'refuse' or 'off'."),
    ] = None,
    sharing: Annotated[
        str | None, typer.Option(help="Equal prefixes run once: within a 'class', for 'all', or 'off'.")
    ] = None,
    log: Annotated[str, typer.Option(help="Logs on stderr as 'json' or 'text'.")] = "json",
    max_body_bytes: Annotated[str | None, _limit("Largest body of a request, such as 16MiB.")] = None,
    max_frame_bytes: Annotated[str | None, _limit("Largest message of a producer.")] = None,
    max_queries: Annotated[int | None, _limit("Registered queries.")] = None,
    max_streams: Annotated[int | None, _limit("Registered streams.")] = None,
    max_tables: Annotated[int | None, _limit("Stored tables.")] = None,
    max_table_bytes: Annotated[str | None, _limit("Largest version of a table, such as 64MiB.")] = None,
    max_table_versions: Annotated[int | None, _limit("Versions of a table that rows still need.")] = None,
    max_producers: Annotated[int | None, _limit("Names of producers that ever fed.")] = None,
    max_subscribers: Annotated[int | None, _limit("Open subscriptions.")] = None,
    max_connections: Annotated[int | None, _limit("Open requests and websockets.")] = None,
    max_disk_bytes: Annotated[str | None, _limit("What all stream logs together may take.")] = None,
    credit_bytes: Annotated[str | None, _limit("What a producer may have under way per stream.")] = None,
    engine_timeout: Annotated[str | None, _limit("How long the engine may hang, such as 30s.")] = None,
    result_bytes: Annotated[str | None, _limit("Answers kept per query, in bytes,")] = None,
    result_time: Annotated[str | None, _limit("and for how long, such as 1h.")] = None,
) -> None:
    """Run a server. Every flag has a variable: --max-queries is MAVSTREAM_MAX_QUERIES."""
    flags = {name: value for name, value in locals().items() if name != "log"}
    try:
        # Imported here: the command is listed without the seconds that a server takes to load.
        from mavstream_server.api.serve import run
        from mavstream_server.core.settings import Settings

        if log not in ("json", "text"):
            raise typer.BadParameter(f"--log: expected json or text, came {log!r}")
        run(Settings.from_environment(os.environ, **flags), "text" if log == "text" else "json")
    except (MavstreamError, typer.BadParameter) as error:
        typer.echo(f"mavstream serve: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        typer.echo(
            f"mavstream serve: {error}: install the server with pip install 'mavstream[server]'", err=True
        )
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
