"""Options that say how rows of files and pipes are read."""

from __future__ import annotations

from typing import Annotated

import typer

from mavstream_protocol.row_files.reading import BadRows, Reading

_PANEL = "How rows are read"

DelimiterOption = Annotated[
    str,
    typer.Option("--delimiter", help="CSV: what separates cells; 'tab' for tabs.", rich_help_panel=_PANEL),
]
DecimalOption = Annotated[
    str, typer.Option("--decimal", help="CSV: the decimal point, '.' or ','.", rich_help_panel=_PANEL)
]
TimeFormatOption = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        help="CSV: unix, unix_ms, unix_us, unix_ns, or as for strptime, '%d.%m.%Y'; by default ISO 8601.",
        rich_help_panel=_PANEL,
    ),
]
RenameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="HEADER=NAME",
        help="CSV: the name of a column; by default it is made of the header.",
        rich_help_panel=_PANEL,
    ),
]
BadRowsOption = Annotated[
    str,
    typer.Option(
        "--bad-rows",
        metavar="skip|stop|FILE",
        help="Rows that cannot be read: leave them out and count them, stop, or also write them to a file.",
        rich_help_panel=_PANEL,
    ),
]


def reading_of(
    delimiter: str, decimal: str, time_format: str | None, rename: list[str] | None, bad_rows: str
) -> Reading:
    """Return how rows are read; raises BadParameter."""
    renamed = {}
    for text in rename or ():
        header, equals, name = text.rpartition("=")
        if not equals:
            raise typer.BadParameter(f"'{text}' is not HEADER=NAME", param_hint="--rename")
        renamed[header] = name
    if delimiter in ("tab", "\\t"):
        delimiter = "\t"
    elif decimal == "," and delimiter == ",":
        # With a decimal comma, cells are separated by semicolons.
        delimiter = ";"
    try:
        return Reading(delimiter, decimal, time_format, renamed, BadRows(bad_rows))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
