"""`mavstream stream`: input streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mavstream._convert.streams import StreamOptions
from mavstream.cli.display.output import show_fields, show_json, show_list, warn
from mavstream.cli.display.readable import clock, size
from mavstream.cli.rows.reading import (
    BadRowsOption,
    DecimalOption,
    DelimiterOption,
    RenameOption,
    TimeFormatOption,
    reading_of,
)
from mavstream.cli.rows.stream_rows import read_rows, show_rows
from mavstream.cli.rows.tuples import TupleFormat, read_tuples
from mavstream.cli.session import Output, OutputOption, StreamArgument, client_of
from mavstream_protocol.wire.resources import StreamInfo

app = typer.Typer(no_args_is_help=True, help="Manage streams and append rows.")


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of the stream.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME:TYPE", help="A field, in order; `NAME:TYPE?` may be null."),
    ] = None,
    event_time: Annotated[str | None, typer.Option(help="Field with the event time of a row.")] = None,
    lateness: Annotated[str | None, typer.Option(help="How late rows may be, such as 2s.")] = None,
    max_ahead: Annotated[
        str | None, typer.Option(help="How far rows may be in the future, such as 1h.")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(help="When a silent producer no longer holds back the watermark.")
    ] = None,
    retention: Annotated[str | None, typer.Option(help="How long rows are kept, such as 1h.")] = None,
    quota: Annotated[str | None, typer.Option(help="Limit of its size on disk, such as 1GB.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A JSON or YAML file with the specification.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a stream from options or a file; options override the file."""
    given: StreamOptions = {
        "name": name,
        "fields": [_read_field(text) for text in field] if field else None,
        "event_time": event_time,
        "lateness": lateness,
        "max_ahead": max_ahead,
        "idle_timeout": idle_timeout,
        "retention": retention,
        "quota": quota,
    }
    if file is None and not (name and field):
        raise typer.BadParameter("give a NAME and at least one --field NAME:TYPE, or a --file")
    with client_of(context) as client:
        info = client.create_stream(file, **given)
    _show(info, output)


@app.command("list")
def list_streams(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the streams."""
    with client_of(context) as client:
        found = client.streams()
    show_list(
        found,
        output,
        ["stream", "rows", "kept", "on disk", "watermark", "producers"],
        lambda one: (
            one.name,
            one.position,
            one.position - one.begin,
            size(one.bytes),
            clock(one.watermark),
            len(one.producers),
        ),
    )


@app.command("show")
def show(context: typer.Context, stream: StreamArgument, output: OutputOption = Output.TABLE) -> None:
    """Show the state of a stream."""
    with client_of(context) as client:
        _show(client.stream_info(stream), output)


@app.command("set")
def set_values(
    context: typer.Context,
    stream: StreamArgument,
    add_field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:TYPE?", help="A field to add; it may be null, as in all rows so far."),
    ] = None,
    max_ahead: Annotated[
        str | None, typer.Option(help="How far rows may be in the future, such as 1h; 'none' for no limit.")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(help="When a silent producer no longer holds back the watermark; or 'none'.")
    ] = None,
    retention: Annotated[
        str | None, typer.Option(help="How long rows are kept, such as 1h; 'none' for no limit.")
    ] = None,
    quota: Annotated[
        str | None, typer.Option(help="Limit of its size on disk, such as 1GB; 'none' for no limit.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add fields to a stream or change its limits, while its producers and queries go on."""
    given = {
        "max_ahead": max_ahead,
        "idle_timeout": idle_timeout,
        "retention": retention,
        "quota": quota,
    }
    changes: dict[str, Any] = {
        name: None if value == "none" else value for name, value in given.items() if value is not None
    }
    if add_field:
        changes["add_fields"] = [_read_field(text, "--add-field") for text in add_field]
    if not changes:
        raise typer.BadParameter("nothing is to be changed: give --add-field, --retention or another option")
    with client_of(context) as client:
        info = client.update_stream(stream, **changes)
    _show(info, output)
    if output is Output.TABLE:
        typer.echo(f"changed: {', '.join(info.changed or ()) or 'nothing, it was so already'}")


@app.command("delete")
def delete(context: typer.Context, stream: StreamArgument, output: OutputOption = Output.TABLE) -> None:
    """Delete a stream and its rows."""
    with client_of(context) as client:
        client.delete_stream(stream)
    if output is Output.JSON:
        show_json({"deleted": stream})


@app.command("append")
def append(
    context: typer.Context,
    stream: StreamArgument,
    file: Annotated[
        Path,
        typer.Argument(help="JSON, JSON lines, CSV or Parquet; - reads stdin.", allow_dash=True),
    ] = Path("-"),
    format_: Annotated[
        TupleFormat | None,
        typer.Option("--format", help="Format of the file; by default from its extension."),
    ] = None,
    delimiter: DelimiterOption = ",",
    decimal: DecimalOption = ".",
    time_format: TimeFormatOption = None,
    rename: RenameOption = None,
    bad_rows: BadRowsOption = "stop",
    output: OutputOption = Output.TABLE,
) -> None:
    """Append rows from a file, or from stdin as they come."""
    reading = reading_of(delimiter, decimal, time_format, rename, bad_rows)
    rows = 0
    with client_of(context) as client:
        for tuples in read_tuples(file, format_, client.stream_info(stream).spec.schema(), reading):
            rows += client.append(stream, tuples)
    bad = reading.bad_rows
    bad.close()
    if output is Output.JSON:
        show_json({"stream": stream, "rows": rows, **({"bad_rows": bad.count} if bad.count else {})})
    else:
        typer.echo(f"{rows:,} rows appended to {stream}")
    if bad.count:
        warn(f"{bad.count:,} rows could not be read and were left out, first {bad.shown[0]}")


@app.command("rows")
def rows(
    context: typer.Context,
    stream: StreamArgument,
    after: Annotated[int | None, typer.Option(min=-1, help="Start after this position.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of rows at most.")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the rows of a stream from the oldest that is stored, or from a position on; JSON as lines."""
    with client_of(context) as client:
        show_rows(read_rows(client, stream, after, limit), output)


@app.command("complete")
def complete(context: typer.Context, stream: StreamArgument, output: OutputOption = Output.TABLE) -> None:
    """Mark a stream as complete: windows close, and queries over it finish."""
    with client_of(context) as client:
        _show(client.complete(stream), output)


def _read_field(text: str, option: str = "--field") -> dict[str, Any]:
    name, colon, kind = text.partition(":")
    if not colon:
        raise typer.BadParameter(f"'{text}' is not NAME:TYPE", param_hint=option)
    return {"name": name, "type": kind.removesuffix("?"), "nullable": kind.endswith("?")}


def _show(info: StreamInfo, output: Output) -> None:
    if output is Output.JSON:
        show_json(info)
        return
    fields = ", ".join(f"{one.name} {one.type}{'?' if one.nullable else ''}" for one in info.spec.fields)
    show_fields(
        [
            ("stream", info.name),
            ("owner", info.owner or "none: it belongs to all"),
            ("fields", fields),
            ("event time", info.spec.event_time),
            ("rows", f"{info.position:,}, kept from {info.begin:,}"),
            ("on disk", size(info.bytes)),
            ("watermark", info.watermark),
            ("producers", info.producers),
            ("over quota", info.over_quota),
            ("held by", info.held_by),
            ("importance", info.importance),
            ("overloaded", info.overloaded),
        ]
    )
