"""Live results of a query, for `mavstream query watch`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

import orjson
import typer
from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mavstream._client import Client
from mavstream._errors import Timeout
from mavstream._results.results import Results
from mavstream.cli.display.output import cell, complain, console
from mavstream.cli.session import Output
from mavstream_protocol.wire.results import Gap

_SHOWN = 20
"""Number of rows in the live table."""


def watch_rows(
    client: Client, query: str, after: str | None, limit: int | None, idle: float | None, output: Output
) -> None:
    """Print rows until the query ends, there were `limit`, or there was none for `idle` seconds."""
    with client.results(query, _position(after), timeout=idle, on_gap=_report_gap) as results:
        rows = islice(_until_idle(results), limit)
        if output is Output.JSON:
            print_lines(rows)
        elif console().is_terminal:
            _show_live(rows, query)
        else:
            _print_columns(rows)


def _position(after: str | None) -> int | Literal["latest"] | None:
    if after is None or after == "latest":
        return "latest" if after else None
    try:
        return int(after)
    except ValueError:
        raise typer.BadParameter(
            f"'{after}' is neither an offset nor 'latest'", param_hint="--after"
        ) from None


def _until_idle(results: Results) -> Iterator[dict[str, Any]]:
    try:
        yield from results
    except Timeout:
        # Without a schema the server never answered, which is an error.
        if results.schema is None:
            raise


def _report_gap(gap: Gap) -> None:
    complain(gap.detail)


def print_lines(rows: Iterator[dict[str, Any]]) -> None:
    """Print rows as lines of JSON, each as soon as it is there."""
    for row in rows:
        sys.stdout.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE).decode())
        sys.stdout.flush()


def _print_columns(rows: Iterator[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        if number == 0:
            print(*row, sep="\t")
        print(*("" if value is None else value for value in row.values()), sep="\t", flush=True)


def _show_live(rows: Iterator[dict[str, Any]], query: str) -> None:
    last: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
    with Live(console=console(), refresh_per_second=10) as live:
        for number, row in enumerate(rows, 1):
            last.append(row)
            live.update(_table(last, f"{query}: {number} rows"))


def _table(rows: deque[dict[str, Any]], title: str) -> Group:
    table = Table(*rows[-1], box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(cell(value) for value in row.values()))
    return Group(Text(title, style="bold"), table)
