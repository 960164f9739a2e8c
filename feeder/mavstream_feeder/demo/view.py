"""Terminal output of the demo: a live table, and a summary at the end."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mavstream_feeder.demo.outcome import QUANTILES, ClassMetrics, Outcome
from mavstream_feeder.reports import Report


class View:
    """Shows metrics of the classes; prints nothing unless `live`."""

    def __init__(self, *, live: bool) -> None:
        self._console = Console(quiet=not live)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._before: tuple[float, dict[str, int]] = (0.0, {})

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False)

    def start(self) -> None:
        """Start the live table."""
        if self._console.is_terminal:
            self._live.start()

    def stop(self) -> None:
        """Remove the live table."""
        self._live.stop()

    def update(self, passed: float, seconds: float, classes: dict[str, ClassMetrics], fed: Report) -> None:
        """Show current metrics; throughput is that since the last update."""
        if not self._live.is_started:
            return
        then, results = self._before
        rates = {
            name: (each.results - results.get(name, 0)) / max(passed - then, 1e-9)
            for name, each in classes.items()
        }
        self._before = passed, {name: each.results for name, each in classes.items()}
        in_flight = fed.sent - fed.acked
        title = f"{passed:5.1f} of {seconds:g} s   {fed.acked} rows acknowledged, {in_flight} in flight"
        self._live.update(_page(title, classes, rates), refresh=True)

    def summary(self, seconds: float, outcome: Outcome) -> None:
        """Print the summary."""
        rates = {name: each.results / seconds for name, each in outcome.classes.items()}
        title = f"{outcome.tuples_in} rows in {seconds:.1f} s"
        if outcome.tuples_acked is not None:
            title += f", {outcome.tuples_acked} acknowledged, {outcome.tuples_lost} lost"
        self._console.print(_page(title, outcome.classes, rates))


def _page(title: str, classes: dict[str, ClassMetrics], rates: dict[str, float]) -> RenderableType:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("class")
    for heading in ("priority", "queries", "results", "results/s", *(f"{name} ms" for name in QUANTILES)):
        table.add_column(heading, justify="right")
    for name, each in classes.items():
        latency = ("-" if (value := each.latency_ms[key]) is None else f"{value:.2f}" for key in QUANTILES)
        table.add_row(
            name, str(each.priority), str(each.queries), str(each.results), f"{rates[name]:.0f}", *latency
        )
    return Group(Text(title), Text(), table)
