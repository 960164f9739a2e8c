"""The `mavstream` command and its exit codes.

0 success, 1 the server refused, 2 wrong command line or something is not installed, 3 the server cannot be
reached, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from mavstream._errors import ProblemError, SqlError, TransportError
from mavstream.cli import classes, optimizer, producers, queries, scheduling, streams, tables, tokens
from mavstream.cli.assembly import AssembledGroup
from mavstream.cli.output import complain, show_fields, show_json
from mavstream.cli.session import Output, OutputOption, Session, client_of
from mavstream.cli.sql.command import run_sql
from mavstream_protocol import InvalidObject, MavstreamError

app = typer.Typer(
    name="mavstream",
    cls=AssembledGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A data stream management service where the queries that matter stay fast.",
)
app.add_typer(streams.app, name="stream")
app.add_typer(producers.app, name="producer")
app.add_typer(tables.app, name="table")
app.add_typer(classes.app, name="class")
app.add_typer(queries.app, name="query")
app.add_typer(scheduling.scheduler, name="scheduler")
app.add_typer(optimizer.app, name="optimizer")
app.add_typer(tokens.app, name="token")
app.command("policies")(scheduling.list_policies)
app.command("sql")(run_sql)


@app.command("info")
def show_info(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the server's version, state and limits."""
    with client_of(context) as client:
        info = client.info()
        ready = client.ready()
    if output is Output.JSON:
        show_json({**info.model_dump(mode="json"), "ready": ready})
        return
    fields = [("server", f"{info.name} {info.version}"), ("ready", ready), ("delivery", info.delivery)]
    show_fields([*fields, ("engines", info.engines), *sorted(info.limits.items())])


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("mavstream"))
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    url: Annotated[
        str, typer.Option(envvar="MAVSTREAM_URL", help="Address of the server.")
    ] = "http://127.0.0.1:8000",
    token: Annotated[
        str | None,
        typer.Option(envvar="MAVSTREAM_TOKEN", show_envvar=True, help="Token for the server."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="MAVSTREAM_TOKEN_FILE", show_envvar=True, help="File with the token."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 10.0,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Store the options that all sub-commands share."""
    if token is None and token_file is not None:
        try:
            token = token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"--token-file: '{token_file}' cannot be read: {error}") from None
    context.obj = Session(url, token, timeout)


def run() -> None:
    """Run the command and exit with its exit code."""
    try:
        app()
    except MavstreamError as error:
        sys.exit(_report(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output has gone. Closing stderr keeps the interpreter from complaining.
        sys.stderr.close()
        sys.exit(0)


def _report(error: MavstreamError) -> int:
    match error:
        case TransportError():
            complain(str(error))
            return 3
        case SqlError():
            complain(str(error))
        case ProblemError():
            items = error.problem.errors
            complain(f"{error.problem.title} ({error.code})" if items else str(error), items)
        case InvalidObject():
            complain(error.title, error.items)
            return 2 if any(item.code in ("unreadable_file", "invalid_url") for item in error.items) else 1
        case _:
            complain(str(error))
    return 1
