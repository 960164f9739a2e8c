"""A feeder's progress on a terminal, and its report as a table."""

from __future__ import annotations

import asyncio

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from mavstream_feeder.reports import Report, Stopped, StreamReport
from mavstream_feeder.sending.feeder import Feeder

_PERIOD = 0.25
_WIDTH = 60


async def shown(feeder: Feeder, seconds: float | None) -> Report:
    """Run a feeder and show its progress, if the output is a terminal."""
    console = Console()
    total = feeder.total
    work = asyncio.create_task(feeder.run(seconds))
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while not (await asyncio.wait({work}, timeout=_PERIOD))[0]:
                if console.is_terminal:
                    live.update(progress(feeder, total, seconds), refresh=True)
    except BaseException:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        raise
    return await work


def progress(feeder: Feeder, total: int | None, seconds: float | None) -> RenderableType:
    """Return a progress bar over the table: by rows if their number is known, else by time."""
    report = feeder.report()
    shares = []
    if total:
        shares.append(feeder.taken / total)
    if seconds:
        shares.append(report.seconds / seconds)
    # Whichever is reached first ends the feed; without either there is no known end.
    bar = ProgressBar(total=1.0, completed=min(max(shares, default=0.0), 1.0), width=_WIDTH, pulse=not shares)
    # In a grid, since a bar alone does not end its line.
    line = Table.grid()
    line.add_row(bar)
    return Group(line, report_table(report))


def print_report(report: Report) -> None:
    """Print the final table, and where the feed stopped if it was not at the end."""
    console = Console()
    console.print(report_table(report))
    for line in remarks(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def report_table(report: Report) -> Table:
    """Return a table with a line per stream, and the total."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("stream")
    for heading in ("sent", "acked", "rejected", "per s", "lag p50", "lag p99", "max"):
        table.add_column(heading, justify="right")
    seconds = max(report.seconds, 1e-9)
    lines: list[tuple[str, StreamReport | Report]] = [
        (f"{name} (waits)" if each.waiting else name, each) for name, each in report.streams.items()
    ]
    for name, each in (*lines, (f"[bold]all[/bold] in {report.seconds:.1f} s", report)):
        table.add_row(
            name,
            f"{each.sent:,}",
            f"{each.acked:,}",
            f"{each.rejected:,}",
            f"{each.acked / seconds:,.0f}",
            _ms(each.lag_p50_ms),
            _ms(each.lag_p99_ms),
            _ms(each.lag_max_ms),
        )
    return table


def remarks(report: Report) -> list[str]:
    """Return remarks below the table: rows that matched no split, and where the feed stopped."""
    lines = [
        f"{rows} rows of {file} match no split condition and were not fed"
        for file, rows in report.unmatched.items()
        if rows
    ]
    feeds = {each.feed: each for each in report.streams.values() if not each.over}
    if report.stopped in (None, Stopped.DONE) or not feeds:
        return lines
    lines.append(_WHY[report.stopped])
    for each in feeds.values():
        passes = f" in pass {each.passes + 1}" if each.passes else ""
        lines.append(f"  {each.feed}: after row {each.row} of {each.file}{passes}")
    lines.append(
        "continue there with " + " ".join(f"--skip {name}={each.row}" for name, each in feeds.items())
    )
    return lines


_WHY = {
    Stopped.TIME: "the time limit was reached; all rows that were sent are acknowledged:",
    Stopped.ASKED: "stopped as requested; all rows that were sent are acknowledged:",
    Stopped.FAILED: "aborted; all rows up to here are acknowledged:",
}


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
