"""The command `mavstream sql` and its options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mavstream.cli.session import client_of
from mavstream.cli.sql.printing import Format, printer_of
from mavstream.cli.sql.runner import Runner
from mavstream_protocol import ReadFrom


def run_sql(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="SQL", help="Run statements and exit."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run a script and exit; '-' is standard input."),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="Tables for people, JSON lines or CSV for programs.")
    ] = Format.TABLE,
    from_: Annotated[
        ReadFrom, typer.Option("--from", help="Where a SELECT begins: at new rows, or at the oldest stored.")
    ] = ReadFrom.NOW,
    limit: Annotated[
        int | None, typer.Option(min=1, help="End a SELECT after this many rows, instead of at Ctrl-C.")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, help="End a SELECT when there was no row for this many seconds.")
    ] = None,
) -> None:
    r"""Run SQL statements, or start an interactive shell (`\?` lists its commands).

    A SELECT runs as a query of its own, which is removed when it ends: at Ctrl-C, or at --limit or --idle.
    Without -c and -f, a standard input that is no terminal is run as a script.
    """
    scripts = [*(command or ()), *map(_read, file or ())]
    if not scripts and not sys.stdin.isatty():
        scripts = [sys.stdin.read()]
    with client_of(context) as client:
        runner = Runner(client, printer_of(output), from_, limit, idle)
        if scripts:
            for script in scripts:
                runner.run(script)
            return
        # prompt_toolkit takes a while to load, and only the shell needs it.
        from mavstream.cli.sql.shell import Shell

        Shell(client, runner).run()


def _read(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"'{path}' cannot be read: {reason}", param_hint="--file") from None
