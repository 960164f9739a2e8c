"""`mavstream table`: stored tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mavstream.cli.display.output import show_fields, show_json, show_list, show_table
from mavstream.cli.display.readable import clock, size
from mavstream.cli.session import Output, OutputOption, client_of
from mavstream_protocol.wire.resources import TableDetail, TableInfo

app = typer.Typer(no_args_is_help=True, help="Manage stored tables, which streams can join.")

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Name of a table.")]


@app.command("put")
def put(
    context: typer.Context,
    table: TableArgument,
    file: Annotated[
        Path,
        typer.Argument(help="CSV, JSON, JSON lines, Parquet or Arrow, by its extension.", dir_okay=False),
    ],
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="NAME:TYPE",
            help="A field of a new table, in order; `NAME:TYPE?` may be null. Inferred by default.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Store a file as a table, or as a new version of one, which rows join from now on."""
    with client_of(context) as client:
        info = client.put_table(table, file, ",".join(field) if field else None)
    if output is Output.JSON:
        show_json(info)
    else:
        typer.echo(f"{info.rows} rows are version {info.version} of {table}, from {info.since} on")


@app.command("list")
def list_tables(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the tables."""
    with client_of(context) as client:
        found = client.tables()
    show_list(
        found,
        output,
        ["table", "fields", "rows", "version", "since", "kept", "on disk"],
        lambda one: (
            one.name,
            _fields(one),
            one.rows,
            one.version,
            clock(one.since),
            one.versions,
            size(one.bytes),
        ),
    )


@app.command("show")
def show(context: typer.Context, table: TableArgument, output: OutputOption = Output.TABLE) -> None:
    """Show a table and its versions."""
    with client_of(context) as client:
        info = client.table_info(table)
    if output is Output.JSON:
        show_json(info)
    else:
        _show(info)


@app.command("delete")
def delete(context: typer.Context, table: TableArgument, output: OutputOption = Output.TABLE) -> None:
    """Delete a table and its versions."""
    with client_of(context) as client:
        client.delete_table(table)
    if output is Output.JSON:
        show_json({"deleted": table})


def _show(info: TableDetail) -> None:
    show_fields(
        [
            ("table", info.name),
            ("fields", _fields(info)),
            ("rows", info.rows),
            ("on disk", size(info.bytes)),
            ("joined by", ", ".join(info.used_by) or None),
        ]
    )
    versions = [(one.version, one.since, one.rows, size(one.bytes)) for one in info.kept]
    show_table(["version", "since", "rows", "on disk"], versions)


def _fields(info: TableInfo) -> str:
    return ", ".join(f"{one.name} {one.type}{'?' if one.nullable else ''}" for one in info.fields)
