"""Printing: tables and fields for people, JSON for programs, problems to the error output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mavstream.cli.session import Output
from mavstream_protocol import ProblemItem

Item = TypeVar("Item")

_WIDE = 200
"""Columns where nobody says how wide the terminal is, as in a pipe."""


def console(error: bool = False) -> Console:
    """Return the console; in a pipe it neither colours nor cuts lines short."""
    found = Console(stderr=error, highlight=False, soft_wrap=error)
    return (
        found if found.is_terminal else Console(stderr=error, highlight=False, width=_WIDE, soft_wrap=error)
    )


def show_json(value: Any) -> None:
    """Print a value, which may be or hold models, as JSON."""
    text = orjson.dumps(plain(value), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    sys.stdout.write(text.decode())


def plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headings."""
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console().print(table)


def show_list(
    found: Sequence[Item], output: Output, columns: Sequence[str], row: Callable[[Item], Sequence[object]]
) -> None:
    """Print what was found as it was asked for: as JSON, or as rows under headings."""
    if output is Output.JSON:
        show_json(found)
    else:
        show_table(columns, map(row, found))


def show_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in fields:
        table.add_row(f"[bold]{escape(name)}[/bold]", cell(value))
    console().print(table)


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict | list | tuple):
        return escape(orjson.dumps(plain(value), default=str).decode())
    return escape(str(value))


def warn(text: str) -> None:
    """Print what may go wrong to the error output."""
    console(error=True).print(f"[yellow]warning:[/yellow] {escape(text)}")


def complain(text: str, items: Iterable[ProblemItem] = ()) -> None:
    """Print what is wrong to the error output, with a line for each place."""
    errors = console(error=True)
    errors.print(f"[red]error:[/red] {escape(text)}")
    for item in items:
        errors.print(f"  [bold]{escape(item.pointer)}[/bold] ({item.code}): {escape(item.detail)}")
