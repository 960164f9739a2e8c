"""Stored rows of a stream, for `mavstream stream rows`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mavstream._client import Client
from mavstream.cli.display.output import show_table, warn
from mavstream.cli.display.watching import print_lines
from mavstream.cli.session import Output

_PAGE_ROWS = 10_000


def read_rows(client: Client, stream: str, after: int | None, limit: int) -> Iterator[dict[str, Any]]:
    """Yield at most `limit` rows behind a position; print a warning for each gap."""
    while limit > 0:
        page = client.rows(stream, after, min(limit, _PAGE_ROWS))
        if page.gap is not None:
            start, stop = page.gap
            warn(f"rows {start} to {stop - 1} of stream '{stream}' cannot be read: {page.gap_reason}")
        yield from page.rows
        limit -= page.batch.num_rows
        if page.next == after or page.next + 1 >= page.end:
            return
        after = page.next


def show_rows(rows: Iterator[dict[str, Any]], output: Output) -> None:
    """Print rows as a table, or as lines of JSON."""
    if output is Output.JSON:
        print_lines(rows)
        return
    found = list(rows)
    if found:
        show_table(list(found[0]), (row.values() for row in found), exact=True)
