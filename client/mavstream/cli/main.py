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
from mavstream.cli.completion import NAME, VARIABLE, Shell, install, prepare, show
from mavstream.cli.session import Output, Session

app = typer.Typer(
    name="mavstream",
    cls=AssembledGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
        typer.Option(envvar="MAVSTREAM_TOKEN", help="Token for the server."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="MAVSTREAM_TOKEN_FILE", help="File with the token."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 10.0,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="A table for people, or JSON for programs.")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    _show: Annotated[
        Shell | None,
        typer.Option(
            "--show-completion", callback=show, is_eager=True, help="Print the tab completion of a shell."
        ),
    ] = None,
    _install: Annotated[
        Shell | None,
        typer.Option(
            "--install-completion", callback=install, is_eager=True, help="Install the tab completion."
        ),
    ] = None,
) -> None:
    """Store the options that all sub-commands share; all but the last three may also stand behind them."""
    context.obj = Session(url, token, token_file, timeout)


def run() -> None:
    """Run the command and exit with its exit code."""
    prepare()
    try:
        app(prog_name=NAME, complete_var=VARIABLE)
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
