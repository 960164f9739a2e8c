"""Output: tables for people, JSON for programs, errors and warnings to stderr."""

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

from mavstream.cli.display.readable import number
from mavstream.cli.session import Output
from mavstream_protocol import ProblemItem

Item = TypeVar("Item")

_PIPE_WIDTH = 200
"""Width of the output in characters, where it is not a terminal."""


def console(error: bool = False) -> Console:
    """Return the console; without a terminal it neither colours nor truncates lines."""
    found = Console(stderr=error, highlight=False, soft_wrap=error)
    return (
        found
        if found.is_terminal
        else Console(stderr=error, highlight=False, width=_PIPE_WIDTH, soft_wrap=error)
    )


def show_json(value: Any) -> None:
    """Print a value, which may contain models, as JSON."""
    text = orjson.dumps(plain(value), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    sys.stdout.write(text.decode())


def plain(value: Any) -> Any:
    """Return a value with models as JSON objects."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def show_table(columns: Sequence[str], rows: Iterable[Iterable[object]], *, exact: bool = False) -> None:
    """Print rows under headings; with `exact`, values are data and are not shortened."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [list(row) for row in rows]
    for place, column in enumerate(columns):
        numbers = any(isinstance(row[place], int | float) for row in shown)
        # What does not fit is folded: a name that is cut off cannot be copied.
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in shown:
        table.add_row(*map(cell if exact else readable, row))
    console().print(table)


def show_list(
    found: Sequence[Item], output: Output, columns: Sequence[str], row: Callable[[Item], Sequence[object]]
) -> None:
    """Print a list in the requested format: JSON, or rows under headings."""
    if output is Output.JSON:
        show_json(found)
    else:
        show_table(columns, map(row, found))


def show_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(f"[bold]{escape(name)}[/bold]", readable(value))
    console().print(table)


def readable(value: object) -> str:
    """Return a value as people read it: numbers in groups of digits, objects as names with values."""
    if isinstance(value, dict):
        return ", ".join(f"{escape(str(key))} {readable(each)}" for key, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(readable, value)) or "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return cell(value)


def cell(value: object) -> str:
    """Return a value of data as the text of a table cell."""
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
    """Print a warning to stderr."""
    console(error=True).print(f"[yellow]warning:[/yellow] {escape(text)}")


def complain(text: str, items: Iterable[ProblemItem] = ()) -> None:
    """Print an error to stderr, with a line for each item."""
    errors = console(error=True)
    errors.print(f"[red]error:[/red] {escape(text)}")
    for item in items:
        errors.print(f"  [bold]{escape(item.pointer)}[/bold] ({item.code}): {escape(item.detail)}")
