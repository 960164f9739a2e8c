"""A feeder's progress on a terminal."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.live import Live
from rich.table import Table

from mavstream_feeder.feeder import Feeder
from mavstream_feeder.reports import Report

_PERIOD = 0.25


async def shown(feeder: Feeder, seconds: float | None) -> Report:
    """Run a feeder and show how far it is; in a pipe, only the end."""
    console = Console()
    work = asyncio.create_task(feeder.run(seconds))
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while not (await asyncio.wait({work}, timeout=_PERIOD))[0]:
                if console.is_terminal:
                    live.update(report_table(feeder.report()), refresh=True)
    except BaseException:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        raise
    report = await work
    console.print(report_table(report))
    return report


def report_table(report: Report) -> Table:
    """Return a line per stream and the total."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("stream")
    for heading in ("sent", "acked", "per s", "lag p50", "lag p99"):
        table.add_column(heading, justify="right")
    seconds = max(report.seconds, 1e-9)
    for name, stream in report.streams.items():
        table.add_row(
            f"{name} (waits)" if stream.waiting else name,
            str(stream.sent),
            str(stream.acked),
            f"{stream.acked / seconds:.0f}",
            _ms(stream.lag_p50_ms),
            _ms(stream.lag_p99_ms),
        )
    table.add_row(
        f"[bold]all[/bold] in {report.seconds:.1f} s",
        str(report.sent),
        str(report.acked),
        f"{report.acked / seconds:.0f}",
        _ms(report.lag_p50_ms),
        _ms(report.lag_p99_ms),
    )
    return table


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
