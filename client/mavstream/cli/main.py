"""The `mavstream` command and its exit codes.

0 success, 1 the server refused, 2 wrong command line or something is not installed, 3 the server cannot be
reached, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mavstream.cli.assembly import AssembledGroup
from mavstream.cli.session import Session

app = typer.Typer(
    name="mavstream",
    cls=AssembledGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A data stream management service where the queries that matter stay fast.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

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
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output has gone. Closing stderr keeps the interpreter from complaining.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        # Imported here: the classes of errors load much that `--help` does not need.
        from mavstream.cli.failures import report
        from mavstream_protocol.errors import MavstreamError

        if not isinstance(error, MavstreamError):
            raise
        sys.exit(report(error))
